"""Several ways to the same loss, one call: `objective(model)`."""

from ._abstract import AbstractObjective as AbstractObjective
from ._abstract import AbstractQuadraticObjective as AbstractQuadraticObjective
from ._control import CONTROL_SUMS as CONTROL_SUMS
from ._control import controlled_mean as controlled_mean
from ._eigenvalues import eigenvalues as eigenvalues
from ._exact import Exact as Exact
from ._moments import Features as Features
from ._moments import Moments as Moments
from ._population import Population as Population
from ._reduced import ReducedSampled as ReducedSampled
from ._sampled import Reduce as Reduce
from ._sampled import Sampled as Sampled
from ._spectral import Spectral as Spectral
