"""What the fast forms of `Population` share: which models they know, the moments, and the loss itself."""

import numpy as np
from jaxtyping import Array, Float

from stepwell._util.types import Loss
from stepwell.models import AbstractModel, is_separate
from stepwell.objectives import AbstractQuadraticObjective, Population


class OfPopulation(AbstractQuadraticObjective):
    """A form of `Population` that differs in how weights move alone."""

    population: Population
    moments: tuple[Float[Array, "*run dim dim"], Float[Array, "*run dim dim"], Float[Array, "*run dim dim"]]
    r"""$\Lambda$, $M\Lambda$ and $C$."""

    def coefficients(self, model: AbstractModel) -> Float[Array, "outputs labels dim dim"]:
        return self.population.coefficients(model)

    def quadratic(self, coefficients: Float[Array, "outputs labels dim dim"]) -> Loss:
        return self.population.quadratic(coefficients)

    def check(self, model: AbstractModel) -> None:
        self.population.check(model)

    def floor(self, model: AbstractModel) -> float | None:
        return self.population.floor(model)


def applies(population: Population, model: AbstractModel, dimension: int) -> bool:
    """Whether this is the loss of separate attention with one output, in double precision, up to a dimension."""
    if type(population) is not Population or not is_separate(model):
        return False
    double = all(weight.dtype == np.float64 for weight in (model.value, model.key, model.query))
    return population.outputs == 1 and model.dim <= dimension and double
