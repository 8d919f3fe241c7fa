"""Many runs: studies, their plans, and sweeps on one machine or on a Dask cluster.

Nothing that computes is imported here: a study is planned without JAX.
"""

from typing import TYPE_CHECKING

from stepwell._util.lazy import lazy_names as _lazy_names

from ._measures import MEASURES as MEASURES
from ._measures import scalars_in as scalars_in
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
    from ._cluster_moments import moments as moments
    from ._draw import draw as draw
    from ._result import table_of as table_of

__getattr__, _ = _lazy_names(__name__, __file__)
