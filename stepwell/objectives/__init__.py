"""Several ways to the same loss, one call: `objective(model)`."""

from ._abstract_objective import AbstractObjective as AbstractObjective
from ._abstract_objective import AbstractQuadraticObjective as AbstractQuadraticObjective
from ._exact import Exact as Exact
from ._feature_moments import FeatureMoments as FeatureMoments
from ._model_checks import eigenvalues as eigenvalues
from ._population import Population as Population
from ._reduced import CONTROL_SUMS as CONTROL_SUMS
from ._reduced import ReducedSampled as ReducedSampled
from ._reduced import controlled_mean as controlled_mean
from ._sample_moments import Features as Features
from ._sample_moments import Moments as Moments
from ._sampled import Reduce as Reduce
from ._sampled import Sampled as Sampled
from ._spectral_loss import Spectral as Spectral
