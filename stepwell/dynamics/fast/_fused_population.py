"""Descent of separate attention at infinitely many sequences, many steps in one native call."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell import native
from stepwell._util.types import Loss
from stepwell.models import AbstractModel, SeparateAttention, is_separate
from stepwell.objectives import AbstractObjective, Population

from ._registry import AbstractMultiStep, multi_step_form
from ._shared import OfPopulation, applies

_DIMENSION = 16
"""The largest dimension for this pass: beyond, a run alone is faster with products of matrices."""


class FusedPopulation(OfPopulation, AbstractMultiStep):
    r"""What `Population` computes, for separate attention in a few dimensions; it descends by itself.

    For one output, $L = c - 2 \langle A, M\Lambda \rangle + \langle A, C A \Lambda \rangle$ with $A = \sum_a v_a k_a
    q_a^\top$. With $S = 2 (C A \Lambda - M\Lambda)$ its gradient is

    $\partial k_a = v_a S q_a, \quad \partial q_a = v_a S^\top k_a, \quad \partial v_a = k_a^\top S q_a$

    A step is a few hundred operations on numbers that fit into the registers, less than it costs a compiler's loop to
    pass from one operation to the next. The native pass takes as many steps as are asked for, of as many runs at a time
    as a vector of the processor holds, and divides the runs among the cores.
    """

    target: str = eqx.field(static=True)

    @classmethod
    def of(cls, population: Population, model: AbstractModel) -> "FusedPopulation | None":
        """Return this form of `population` for models like `model`; None where it does not apply or is not built."""
        if not applies(population, model, _DIMENSION):
            return None
        kernel = native.kernel("population_descent", "double")
        return None if kernel is None else cls(population, population.matrices(), kernel.target)

    def multi_step(
        self, model: AbstractModel, rate: Float[Array, ""], steps: Int[Array, ""]
    ) -> tuple[Loss, SeparateAttention]:
        assert is_separate(model)
        weights = model.value, model.key, model.query
        results = [jax.ShapeDtypeStruct(part.shape, np.float64) for part in (rate, *weights)]
        call = jax.ffi.ffi_call(self.target, results, vmap_method="expand_dims")
        moments = *self.moments, self.population.label_power
        loss, *moved = call(*weights, *moments, rate, steps.astype(np.int64))
        return loss, model.with_weights(dict(zip(("value", "key", "query"), moved, strict=True)))


@multi_step_form.register
def _(objective: Population, model: AbstractModel) -> AbstractObjective:
    return FusedPopulation.of(objective, model) or objective
