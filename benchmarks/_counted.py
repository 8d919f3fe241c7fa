"""A flow by a solver of Diffrax, its gradients counted as they are made: those of rejected steps too."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

ABSOLUTE = 1e-3
"""The absolute tolerance over the relative one: well below the weights that matter."""


class Solved(NamedTuple):
    losses: Float[np.ndarray, " time"]
    steps: int
    gradients: int


class _Calls:
    made = 0

    @classmethod
    def add(cls) -> None:
        cls.made += 1


def count(
    model: AbstractModel, objective: AbstractObjective, solver: Any, rtol: float, times: Float[np.ndarray, " time"]
) -> Solved:
    """Losses at those times, and what they cost."""
    _Calls.made = 0
    losses, steps = solve(model, objective, solver, rtol, times, counted=True)
    jax.effects_barrier()
    return Solved(np.asarray(losses), int(steps), _Calls.made)


def solve(
    model: AbstractModel,
    objective: AbstractObjective,
    solver: Any,
    rtol: float,
    times: Float[np.ndarray, " time"],
    *,
    atol: float | None = None,
    moving: tuple[int, ...] | None = None,
    counted: bool = False,
) -> tuple[Array, Array]:
    """(losses at those times, tries of a step); of all weights, or of those in some places; counting takes time."""
    atol = ABSOLUTE * rtol if atol is None else atol
    return _solve(model, objective, solver, jnp.asarray([rtol, atol]), jnp.asarray(times), moving, counted)


@eqx.filter_jit
def _solve(
    model: Any, objective: Any, solver: Any, tolerances: Array, times: Array, moving: Any, counted: bool
) -> tuple[Array, Array]:
    every, restore = jax.flatten_util.ravel_pytree(model.weights())
    places = np.arange(every.size) if moving is None else np.array(moving)

    def loss(weights: Array) -> Array:
        return objective(model.with_weights(restore(every.at[places].set(weights))))

    def field(_: Any, weights: Array, args: Any) -> Array:
        if counted:
            jax.debug.callback(_Calls.add)
        return -0.5 * jax.grad(loss)(weights)

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        solver,
        times[0],
        times[-1],
        None,
        every[places],
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1]),
        max_steps=1_000_000,
    )
    return jax.lax.map(loss, solution.ys), solution.stats["num_steps"]
