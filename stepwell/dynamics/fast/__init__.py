"""Fast forms of known pairs of objective and model, and the registry that picks one.

To add one, copy a file here and give it a line below.
"""

from ._fused_population import FusedPopulation as FusedPopulation
from ._fused_reduced import FusedReduced as FusedReduced
from ._fused_sampled import FusedSampled as FusedSampled
from ._registry import AbstractMultiStep as AbstractMultiStep
from ._registry import AbstractResolvent as AbstractResolvent
from ._registry import AbstractRosenbrock as AbstractRosenbrock
from ._registry import Tableau as Tableau
from ._registry import gradient_form as gradient_form
from ._registry import multi_step_form as multi_step_form
from ._registry import stiff_form as stiff_form
from ._resolvent_merged import ResolventMerged as ResolventMerged
from ._resolvent_population import ResolventPopulation as ResolventPopulation
from ._shared import AbstractForm as AbstractForm
from ._stepping_population import SteppingPopulation as SteppingPopulation
