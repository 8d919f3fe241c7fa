"""Runs that last: shards of many runs, a store that finds them, and studies that fill it.

Nothing that computes is imported here: a store is read, and a study planned, without JAX.
"""

from typing import TYPE_CHECKING, Any

from ._column import Column as Column
from ._export import FORMATS as FORMATS
from ._export import export as export
from ._measures import MEASURES as MEASURES
from ._measures import scalars_in as scalars_in
from ._shard import Shard as Shard
from ._store import OFF as OFF
from ._store import VARIABLE as VARIABLE
from ._store import Store as Store
from ._study import Axis as Axis
from ._study import Limits as Limits
from ._study import Study as Study
from ._study import short_name as short_name
from ._sweep import Job as Job
from ._sweep import Plan as Plan
from ._sweep import compute_in_process as compute_in_process
from ._sweep import job_result as job_result
from ._sweep import plan_sweep as plan_sweep
from ._sweep import run_job as run_job
from ._sweep import sweep as sweep

if TYPE_CHECKING:
    from ._cluster import on_cluster as on_cluster
    from ._draw import draw as draw
    from ._moments import moments as moments
    from ._result import table_of as table_of
    from ._single_run import load_run as load_run
    from ._single_run import save_run as save_run

_LATER = {
    "save_run": "_single_run",
    "load_run": "_single_run",
    "draw": "_draw",
    "moments": "_moments",
    "on_cluster": "_cluster",
    "table_of": "_result",
}
"""What takes a while to import, and where it is."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"stepwell.runs.{_LATER[name]}"), name)
    raise AttributeError(f"module 'stepwell.runs' has no attribute {name!r}")
