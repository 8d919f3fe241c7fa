"""Several ways to the same loss, one call: `objective(model)`."""

from ._abstract import AbstractObjective as AbstractObjective
from ._moments import Moments as Moments
from ._population import Population as Population
from ._sampled import Sampled as Sampled
