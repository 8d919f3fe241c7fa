"""What is read off a run: plateaus, drops and weights, the comparison with theory, figures and animations.

No figure needs a screen, and `pyplot` is not used; matplotlib is imported with the first name that draws.
"""

from typing import TYPE_CHECKING

from stepwell._util.lazy import lazy_names as _lazy_names

from ._compare import ComparedDrop as ComparedDrop
from ._compare import ComparedRun as ComparedRun
from ._compare import Comparison as Comparison
from ._compare import compare as compare
from ._compare_units import unit_drops as unit_drops
from ._conserved import conserved as conserved
from ._conserved import conserved_drift as conserved_drift
from ._head_structure import HeadStructure as HeadStructure
from ._head_structure import head_structure as head_structure
from ._heads import Allocation as Allocation
from ._heads import alignment as alignment
from ._heads import head_task_allocation as head_task_allocation
from ._heads import winners as winners
from ._in_context import pcr_test as pcr_test
from ._in_context import principal_component_regression as principal_component_regression
from ._manifolds import Relation as Relation
from ._manifolds import effective_width as effective_width
from ._manifolds import manifold_distance as manifold_distance
from ._maps import effective_map as effective_map
from ._maps import nearest_fixed_point as nearest_fixed_point
from ._phases import Phase as Phase
from ._phases import Phases as Phases
from ._phases import phases as phases
from ._sample_task import sample_task as sample_task
from ._staircase import Drop as Drop
from ._staircase import Plateau as Plateau
from ._staircase import Staircase as Staircase
from ._staircase import level_drops as level_drops
from ._staircase import passage_time as passage_time
from ._staircase import staircase as staircase

if TYPE_CHECKING:
    from ._animate import animate as animate
    from ._draw import draw_map as draw_map
    from ._draw import draw_staircase as draw_staircase
    from ._draw import draw_weights as draw_weights

__getattr__, __dir__ = _lazy_names(__name__, __file__)
