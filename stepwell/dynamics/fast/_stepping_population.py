"""Steps along the flow of separate attention at infinitely many sequences, each in one native call."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from stepwell import native
from stepwell._util.types import Loss
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective, Population

from ._registry import AbstractRosenbrock, Tableau, stiff_form
from ._resolvent_merged import ResolventMerged
from ._resolvent_population import ResolventPopulation
from ._shared import OfPopulation, applies

_DIMENSION = 8
"""At the most. The system has D² equations; LAPACK factorizes it as fast at D = 8 for a run alone, six times as fast at
D = 16, and the lanes of eight runs make up for a factor of two at D = 12."""


class SteppingPopulation(OfPopulation, AbstractRosenbrock):
    """What `Population` computes, for separate attention in a few dimensions; it takes steps of its flow by itself.

    The mathematics is that of `ResolventPopulation`. The native pass takes as many runs at a time as a vector of the
    processor holds, and divides the runs among the cores. One run alone would leave all lanes but one empty: it has a
    pass of its own, whose vectors lie along rows of matrices.
    """

    together: str = eqx.field(static=True)
    """The target of the pass for several runs."""
    alone: str = eqx.field(static=True)
    """The target of the pass for one."""

    @classmethod
    def of(cls, population: Population, model: AbstractModel) -> "SteppingPopulation | None":
        """Return this form of `population` for models like `model`; None where it does not apply or is not built."""
        if not applies(population, model, _DIMENSION):
            return None
        together = native.kernel("population_step", "double")
        if together is None:
            return None
        alone = native.kernel("population_step_alone", "double") or together
        return cls(population, population.matrices(), together.target, alone.target)

    def rosenbrock_step(
        self, weights: Float[Array, "head weights"], length: Float[Array, ""], tableau: Tableau
    ) -> tuple[Loss, Float[Array, "results head weights"]]:
        shapes = (), (2 + len(tableau.d), *weights.shape)
        results = [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]
        several = jax.ffi.ffi_call(self.together, results, vmap_method="expand_dims")
        step = custom_vmap(jax.ffi.ffi_call(self.alone, results))

        @step.def_vmap
        def _(runs: int, batched: list[bool], *given: Any) -> tuple[Any, list[bool]]:
            return jax.vmap(several, in_axes=[0 if each else None for each in batched])(*given), [True, True]

        loss, stepped = step(weights, *self.moments, self.population.label_power, length, *map(jnp.asarray, tableau))
        return loss, stepped


@stiff_form.register
def _(objective: Population, model: AbstractModel) -> AbstractObjective:
    for form in (SteppingPopulation, ResolventPopulation, ResolventMerged):
        if (fast := form.of(objective, model)) is not None:
            return fast
    return objective
