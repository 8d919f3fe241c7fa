"""One run by SciPy's LSODA, with a compiled gradient and a compiled Jacobian; its state, so that it can be saved."""

import dataclasses
import functools
import math
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._balance import tie
from ._ensemble import Ensemble, flatten
from ._field import Field, make_fields
from ._plan import MOST_STEPS, AbstractFlowSolver, Goals, Plan, Reached, Solution, follow
from .fast import gradient_form

_WORK = ("rwork", "iwork", "state_doubles", "state_ints")
_CONTINUED = 2
"""LSODA's `istate` after its first step."""


def state_of(stepper: Any) -> dict[str, Any]:
    """The state between two steps."""
    return {
        "work": [getattr(stepper._lsoda_solver._integrator, name) for name in _WORK],
        "weights": stepper.y,
        "times": [float(stepper.t_old), float(stepper.t)],
        "counts": [int(stepper.nfev), int(stepper.njev), int(stepper.nlu)],
    }


def restore(stepper: Any, state: dict[str, Any]) -> None:
    """Put a new stepper into a state."""
    solver, weights, (t_old, t) = stepper._lsoda_solver, state["weights"], state["times"]
    for name, values in zip(_WORK, state["work"], strict=True):
        getattr(solver._integrator, name)[:] = values
    solver._integrator.call_args[3] = _CONTINUED
    solver._y, solver.t = weights.copy(), t
    stepper.y, stepper.t, stepper.t_old = weights.copy(), t, t_old
    stepper.nfev, stepper.njev, stepper.nlu = state["counts"]


class Piece(NamedTuple):
    r"""The path within a step that ended at time t: $w(s) = \sum_p y_p \left(\frac{s - t}{h}\right)^p$."""

    t: float
    h: float
    y: np.ndarray
    """Nordsieck's array (weights, power)."""

    def at(self, time: float) -> np.ndarray:
        return self.y @ ((time - self.t) / self.h) ** np.arange(self.y.shape[1])


_OBSERVE_EVERY = 8
"""Solver steps after which the loss is observed, to see whether it has converged."""
_SECONDS = 0.2
"""After so long a run can be interrupted or saved before that."""
_AT_ONCE = 64
"""How many states one call computes the losses of, at the most."""


class _Compiled:
    """A field as functions of NumPy vectors.

    The functions are compiled once for each kind of field, and its arrays are handed over one by one: a solver makes
    thousands of calls, and taking a module apart at each costs more than the gradient.
    """

    def __init__(self, field: Field):
        arrays, rest = eqx.partition(field, eqx.is_array)
        self._leaves, structure = jax.tree.flatten(arrays)
        self._field, self._jacobian, self._losses = _functions(_Kind(structure, rest))

    def field(self, _: float, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self._field(weights, *self._leaves))

    def jacobian(self, _: float, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self._jacobian(weights, *self._leaves))

    def losses(self, states: np.ndarray) -> np.ndarray:
        """The losses of any number of states. One compiled program serves them all."""
        losses, padded = [np.zeros(0)], np.zeros((_AT_ONCE, states.shape[1]))
        for first in range(0, len(states), _AT_ONCE):
            piece = states[first : first + _AT_ONCE]
            padded[: len(piece)] = piece
            losses.append(np.asarray(self._losses(padded, len(piece), *self._leaves))[: len(piece)])
        return np.concatenate(losses)


class _Kind(NamedTuple):
    """All of a field but its arrays; hashable."""

    structure: Any
    rest: Any

    def __hash__(self) -> int:
        return hash((self.structure, jax.tree.structure(self.rest)))


@functools.lru_cache(maxsize=64)
def _functions(kind: _Kind) -> tuple[Any, Any, Any]:
    """Compiled field, Jacobian and losses."""

    def of_leaves(method: Any) -> Any:
        def call(weights: Array, *leaves: Array) -> Array:
            return method(eqx.combine(jax.tree.unflatten(kind.structure, leaves), kind.rest), weights)

        return call

    loss = of_leaves(Field.loss)

    def losses(states: Array, count: Int[Array, ""], *leaves: Array) -> Array:
        def put(place: Int[Array, ""], losses: Array) -> Array:
            return losses.at[place].set(loss(states[place], *leaves))

        return jax.lax.fori_loop(0, count, put, jnp.zeros(_AT_ONCE))

    return jax.jit(of_leaves(Field.__call__)), jax.jit(of_leaves(Field.jacobian)), jax.jit(losses)


@dataclasses.dataclass(frozen=True)
class LSODA(AbstractFlowSolver):
    """SciPy's LSODA, with compiled gradient and Jacobian; for one run. It turns implicit where the flow is stiff.

    It has no arguments: tolerances are given to `flow`.

    **Example:**

    >>> sw.dynamics.LSODA().name
    'lsoda'
    """

    @property
    def name(self) -> str:
        return "lsoda"

    def form(self, objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
        """Return the loss in its plain form: the Jacobian of one without second gradients is made of differences."""
        return gradient_form(objective, model)

    def numbers_held(self, weights: int, plan: Plan) -> int:
        return 4 * weights**2

    def solve(self, fields: Any, initial: Float[Array, "run weights"], plan: Plan) -> Solution:
        """Integrate until the time or the loss that the plan names, and read the solution off at its save times."""
        from scipy import integrate

        if isinstance(fields, Ensemble) or initial.shape[0] > 1:
            raise InvalidInput("lsoda takes one run; for an ensemble use solver='kvaerno5'")
        compiled, start, goals = _Compiled(fields), np.array(initial[0]), Goals(plan, 1)
        end = math.inf if plan.until is None else plan.until
        stepper = integrate.LSODA(
            compiled.field, 0.0, start, end, jac=compiled.jacobian, rtol=plan.rtol, atol=plan.atol, max_step=np.inf
        )
        pieces: list[Piece] = []
        if plan.checkpoint.state is not None:
            restore(stepper, plan.checkpoint.state["stepper"])
            pieces = [Piece(*piece) for piece in plan.checkpoint.state["pieces"]]

        def saved() -> dict[str, Any]:
            return {"stepper": state_of(stepper), "pieces": pieces}

        losses = np.full(1, np.inf)

        def advance() -> Reached:
            nonlocal losses
            trouble, begun = None, time.monotonic()
            for _ in range(_OBSERVE_EVERY - len(pieces) % _OBSERVE_EVERY):
                trouble = stepper.step()
                if stepper.status == "failed" or not np.all(np.isfinite(stepper.y)):
                    trouble = trouble or "not finite"
                    break
                dense: Any = stepper.dense_output()
                pieces.append(Piece(float(dense.t), float(dense.h), dense.yh))
                if stepper.status == "finished" or time.monotonic() - begun > _SECONDS:
                    break
            times, arrived = np.array([stepper.t]), np.zeros(1, bool)
            # At steps that do not depend on the clock.
            if stepper.status == "finished" or len(pieces) % _OBSERVE_EVERY == 0:
                losses = compiled.losses(stepper.y[None])
                arrived = (times >= goals.ends) | (losses <= goals.targets)
            return Reached(times, losses, arrived, np.array([trouble is not None]), len(pieces), trouble)

        try:
            outcome, message = follow(plan, goals, advance, saved, MOST_STEPS)
        except KeyboardInterrupt:
            outcome, message = plan.interrupted(stepper.t)
        times = plan.times(pieces[-1].t if pieces else 0.0, np.array([piece.t for piece in pieces]))
        work = {"steps": len(pieces), "gradients": int(stepper.nfev), "jacobians": int(stepper.njev)}
        states = _read(pieces, times, start)
        return Solution(times, states[None], outcome, message, work, compiled.losses(states)[None])


def _read(pieces: list[Piece], times: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The solution at given times from the solver's own interpolants."""
    if not pieces:
        return np.broadcast_to(start, (times.size, start.size)).copy()
    ends = np.array([piece.t for piece in pieces])
    places = np.searchsorted(ends, times).clip(0, len(pieces) - 1)
    states = np.stack([pieces[place].at(t) for place, t in zip(places, times, strict=True)])
    states[times == 0.0] = start
    return states


def prepare_lsoda(model: AbstractModel, objective: AbstractObjective) -> None:
    """Compile what LSODA needs once a flow turns stiff, so that a later run does not wait for it.

    **Arguments:**

    - `model`: a model of the shape that will be trained.
    - `objective`: the loss.

    **Example:**

    >>> task = sw.InContextRegression(sw.covariance([1.0, 0.5]), 31)
    >>> model = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> sw.dynamics.prepare_lsoda(model, sw.Population(task))
    """
    fields, initial = make_fields(objective, model, LSODA().form), np.atleast_2d(flatten(model))
    tied = tie(fields, model, initial)
    fields, initial = (fields, initial) if tied is None else (tied.fields, np.asarray(tied.initial))
    _Compiled(fields).jacobian(0.0, initial[0])
