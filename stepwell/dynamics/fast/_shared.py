"""What fast forms share: that their objective was checked, sequences laid out for a native pass, and `Population`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell import native
from stepwell._util.types import Loss
from stepwell.models import AbstractModel, is_separate
from stepwell.objectives import AbstractObjective, AbstractQuadraticObjective, Population


class AbstractForm(AbstractObjective):
    """A form of an objective that is made of one that was checked, for a model that it was checked with."""

    def check(self, model: AbstractModel) -> None:
        """Nothing to check."""

    def floor(self, model: AbstractModel) -> float | None:
        """Not known here: the objective is asked."""


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


def blocked(array: Any, values: Any, kernel: native.Kernel) -> Array:
    """(sequences, …) as (block, …, lanes) with as many lanes as a vector of the processor holds, innermost in memory.

    What the last block lacks is zero, and counts nothing. `array` is the module of the values, `numpy` or `jax.numpy`.
    """
    lanes = kernel.vector_bytes // values.dtype.itemsize
    blocks = -(-values.shape[0] // lanes)
    padding = [(0, blocks * lanes - values.shape[0])] + [(0, 0)] * (values.ndim - 1)
    moved = array.moveaxis(array.pad(values, padding).reshape(blocks, lanes, *values.shape[1:]), 1, -1)
    return moved if array is jnp else jax.device_put(np.ascontiguousarray(moved))
