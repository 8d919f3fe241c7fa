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
from ._sweep import plan_sweep as plan_sweep
from ._sweep import run_job as run_job
from ._sweep import sweep as sweep
from ._sweep import table_of as table_of

if TYPE_CHECKING:
    from ._cluster_moments import moments as moments
    from ._draw import draw as draw

__getattr__, __dir__ = _lazy_names(__name__, __file__)
