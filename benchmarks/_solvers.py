"""One gradient flow by several solvers: the laboratory's own, Diffrax's implicit ones, and CVODE.

All are given the gradient as a compiled program, and all but Diffrax's, which make their own, the Jacobian too; LSODA
and CVODE call them through Python. Diffrax's and CVODE are spared the weights that start at zero: the label blocks,
which stay there.
"""

import importlib
import json
from typing import Any, NamedTuple, Protocol

import diffrax
import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell.dynamics import Record, flow
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._row import Unavailable

_SMALL = 100
"""Weights up to which SUNDIALS' own elimination is faster than LAPACK's."""


class Solved(NamedTuple):
    losses: Float[np.ndarray, " time"]
    work: dict[str, int]


class Solver(Protocol):
    """Solves one flow, up to the last of the times (time 0 is not among them)."""

    def __call__(self, times: Float[np.ndarray, " time"], rtol: float, atol: float) -> Solved: ...


def own(model: AbstractModel, objective: AbstractObjective, solver: Any) -> Solver:
    """By `stepwell.dynamics.flow`."""

    def solve(times: Float[np.ndarray, " time"], rtol: float, atol: float) -> Solved:
        found = flow(
            model,
            objective,
            until=times[-1],
            record=Record(points=times),
            solver=solver,
            rtol=rtol,
            atol=atol,
            progress=False,
        )
        return Solved(found.loss[0].values, json.loads(found.attrs["configuration"])["work"])

    return solve


def of_diffrax(model: AbstractModel, objective: AbstractObjective, solver: diffrax.AbstractSolver) -> Solver:
    """By a solver of Diffrax, from beginning to end in one compiled program."""
    moving = _moving(model)

    def solve(times: Float[np.ndarray, " time"], rtol: float, atol: float) -> Solved:
        from_zero = jnp.concatenate([jnp.zeros(1), jnp.asarray(times)])
        losses, attempts = _integrate(model, objective, solver, jnp.asarray([rtol, atol]), from_zero, moving)
        return Solved(np.asarray(losses)[1:], {"attempted steps": int(attempts)})

    return solve


@eqx.filter_jit
def _integrate(
    model: Any, objective: Any, solver: Any, tolerances: Array, times: Array, moving: tuple[int, ...]
) -> tuple[Array, Array]:
    """(losses at those times, attempted steps)."""
    every, restore = jax.flatten_util.ravel_pytree(model.weights())
    places = np.array(moving)

    def loss(weights: Array) -> Array:
        return objective(model.with_weights(restore(every.at[places].set(weights))))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, weights, args: -0.5 * jax.grad(loss)(weights)),
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


def of_sundials(model: AbstractModel, objective: AbstractObjective) -> Solver:
    """By CVODE: backward differences, direct solution of the linear equations."""
    try:
        cvode: Any = importlib.import_module("sksundae.cvode")
    except ImportError:
        raise Unavailable("needs scikit-sundae; `make bench` installs it") from None
    start, restore = jax.flatten_util.ravel_pytree(model.weights())
    every, moving = np.zeros(start.size), np.array(_moving(model))
    start = np.array(start)[moving]

    def loss(weights: Any) -> Any:
        return objective(model.with_weights(restore(jnp.asarray(every).at[moving].set(weights))))

    def gradient(weights: Any) -> Any:
        return -0.5 * jax.grad(loss)(weights)

    losses = jax.jit(lambda states: jax.lax.map(loss, states))
    field, jacobian = jax.jit(gradient), jax.jit(jax.jacfwd(gradient))

    def velocity(_: float, weights: np.ndarray, out: np.ndarray) -> None:
        out[:] = field(weights)

    def derivative(_: float, weights: np.ndarray, __: np.ndarray, out: np.ndarray) -> None:
        out[:] = jacobian(weights)

    def solve(times: Float[np.ndarray, " time"], rtol: float, atol: float) -> Solved:
        elimination = "dense" if start.size <= _SMALL else "lapackdense"
        options = {"jacfn": derivative, "linsolver": elimination, "max_num_steps": 1_000_000}
        found = cvode.CVODE(velocity, rtol=rtol, atol=atol, **options).solve(np.concatenate([[0.0], times]), start)
        if not found.success:
            return Solved(np.full(times.size, np.nan), {})
        return Solved(np.asarray(losses(found.y[1:])), {"gradients": int(found.nfev), "jacobians": int(found.njev)})

    return solve


def _moving(model: AbstractModel) -> tuple[int, ...]:
    """The places of the weights that do not start at zero."""
    return tuple(np.flatnonzero(np.asarray(jax.flatten_util.ravel_pytree(model.weights())[0])).tolist())
