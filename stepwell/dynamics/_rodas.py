"""One run or an ensemble by Rodas5P, step after step in one compiled program."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from stepwell._util.memory import available_memory
from stepwell._util.process import quick_jit
from stepwell._util.progress import Meter
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._checkpoint import arrays_of, with_arrays
from ._ensemble import Ensemble
from ._field import over_runs
from ._loop import ChunkSize
from ._plan import MOST_STEPS, AbstractFlowSolver, Goals, Plan, Reached, Solution, follow
from ._rosenbrock import RODAS5P, Pace, between, error_of, next_pace
from ._stiffness import Reading, structure
from .fast import stiff_form

FEW_COEFFICIENTS = 256
"""Up to so many coefficients of a quadratic loss its Hessian is cheaper by way of them."""
_ATTEMPTS = 128
"""Attempted steps in one call of the compiled program at the most."""
_FIRST_ATTEMPTS = 32
"""Attempted steps in the first call."""
_RECORD = 5_000
"""Numbers that the record of a long run takes for each weight."""
_EACH = 5
"""Numbers for each weight that the record of an attempted step takes."""
_AT_ONCE = 128
"""How many times one call computes the losses for."""
_FIRST = 1e-6
"""Length of the first step; the following ones grow fast."""
_SHORTEST = 4 * np.finfo(float).eps
"""A step shorter than this fraction of the time does not move on."""


class _State(NamedTuple):
    """Where a run is, or with a first axis `run` where all are."""

    weights: Any
    time: Any
    pace: Pace
    loss: Any
    arrived: Any
    failed: Any


class _Attempt(NamedTuple):
    """An attempted step: whether it was accepted, where it led, and the dense-output coefficients in between."""

    accepted: Any
    time: Any
    weights: Any
    dense: Any


@dataclasses.dataclass(frozen=True)
class Rodas5P(AbstractFlowSolver):
    """Rodas5P, a Rosenbrock method of order 5, in one compiled program; for one run or an ensemble.

    It is implicit and takes no Newton iterations: what decays fast takes no small steps (see `_rosenbrock`). It has no
    arguments: tolerances are given to `flow`.

    **Example:**

    >>> sw.dynamics.Rodas5P().name
    'rodas5p'
    """

    @property
    def name(self) -> str:
        return "rodas5p"

    def form(self, objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
        return stiff_form(objective, model)

    def numbers_held(self, weights: int, plan: Plan) -> int:
        return (4 * weights + 2 * FEW_COEFFICIENTS + _RECORD) * weights

    def solve(self, fields: Any, initial: Float[Array, "run weights"], plan: Plan) -> Solution:
        """Integrate every run with steps of its own until the time or the loss that the plan names."""
        start = np.asarray(initial, dtype=np.float64)
        runs = start.shape[0]
        places, heads = structure(fields.member(0) if isinstance(fields, Ensemble) else fields, jnp.asarray(start[0]))
        several = isinstance(fields, Ensemble)
        reading: Any = Reading(fields.stacked if several else fields, places, heads)
        reading = Ensemble(reading, fields.size) if several else reading
        state = _begin(start[:, list(places)])
        record: list[_Attempt] = []
        goals, size = Goals(plan, runs), ChunkSize(_FIRST_ATTEMPTS)
        rtol, atol = np.array(plan.rtol), np.array(plan.atol)  # arrays, or each would be compiled anew
        most = min(MOST_STEPS, available_memory() // (2 * 8 * _EACH * state.weights.size))
        if plan.checkpoint.state is not None:
            now = plan.checkpoint.state["now"]
            state, goals.ends, goals.targets = with_arrays((state, *goals), now)
            record += [_Attempt(*part) for part in plan.checkpoint.state["attempts"]]

        def saved() -> dict[str, Any]:
            return {"now": arrays_of((state, *goals)), "attempts": record}

        def advance() -> Reached:
            nonlocal state
            begun, taken = time.monotonic(), sum(len(part.accepted) for part in record)
            now = np.array(min(size.steps, _ATTEMPTS, most - taken))
            advanced = _advance(reading, state, goals.ends, goals.targets, rtol, atol, now)
            state, attempts, count = jax.tree.map(np.asarray, advanced)
            record.append(_Attempt(*(np.array(part[:count]) for part in attempts)))
            size.measured(time.monotonic() - begun, int(count))
            return Reached(state.time, state.loss, state.arrived, state.failed, taken + int(count))

        outcome, message = follow(plan, goals, advance, saved, most)
        attempts = _Attempt(*(np.concatenate(parts) for parts in zip(*record, strict=True)))
        moments = plan.times(float(state.time.min()), attempts.time[attempts.accepted])
        weights = np.repeat(start[:, None], moments.size, axis=1)
        with Meter("weights along the runs", runs, shown=plan.progress) as meter:
            for run in range(runs):
                weights[run][:, list(places)] = _path(attempts, run, start[run, list(places)], moments)
                meter.update(run + 1)
        steps, tried = int(attempts.accepted.sum()), attempts.accepted.size
        work = {"steps": steps, "gradients": 8 * tried, "jacobians": tried}
        return Solution(moments, weights, outcome, message, work, _path_losses(fields, weights, plan.progress))


def _begin(weights: Float[np.ndarray, "run weights"]) -> _State:
    runs = weights.shape[0]
    no, zero, one = np.zeros(runs, bool), np.zeros(runs), np.ones(runs)
    return _State(weights, zero, Pace(_FIRST * one, _FIRST * one, one, no), one, no, no)


@quick_jit
def _advance(reading: Any, state: _State, ends: Any, targets: Any, rtol: Any, atol: Any, most: Any):
    """(state, attempts, how many) after up to `most` steps, which are no more than `_ATTEMPTS`.

    They are fewer when every run has arrived or one has failed.
    """

    def single(reading: Reading, given: tuple[_State, Array, Array]) -> tuple[_State, _Attempt]:
        return _attempt(reading, *given, rtol, atol)

    def every(state: _State) -> tuple[_State, _Attempt]:
        return over_runs(reading, single, (state, ends, targets))

    def going(carry: tuple[_State, _Attempt, Array]) -> Bool[Array, ""]:
        state, _, count = carry
        return (count < most) & ~jnp.all(state.arrived) & ~jnp.any(state.failed)

    def body(carry: tuple[_State, _Attempt, Array]):
        state, attempts, count = carry
        state, attempt = every(state)
        return state, jax.tree.map(lambda all, new: all.at[count].set(new), attempts, attempt), count + 1

    runs, size = state.weights.shape
    shapes = _Attempt(accepted=(), time=(), weights=(size,), dense=(len(RODAS5P.d), size))
    kinds = _Attempt(accepted=bool, time=float, weights=float, dense=float)
    attempts = _Attempt(
        *(jnp.zeros((_ATTEMPTS, runs, *shape), kind) for shape, kind in zip(shapes, kinds, strict=True))
    )
    waiting = state._replace(arrived=jnp.zeros_like(state.arrived))
    return jax.lax.while_loop(going, body, (waiting, attempts, jnp.zeros((), int)))


def _attempt(
    reading: Reading, state: _State, end: Array, target: Array, rtol: Array, atol: Array
) -> tuple[_State, _Attempt]:
    """One attempted step of one run; nothing moves once it has arrived."""
    length = jnp.minimum(state.pace.length, end - state.time)
    loss, (after, estimate, dense) = reading.step(state.weights, length)
    sound = jnp.isfinite(loss)
    arrived = sound & ((loss <= target) | (state.time >= end))
    error = error_of(estimate, state.weights, after, rtol, atol)
    accepted = (error <= 1.0) & ~arrived
    time = jnp.where(length < end - state.time, state.time + length, end)
    failed = ~sound | (~arrived & (state.pace.length <= _SHORTEST * state.time))
    pace = jax.tree.map(lambda old, new: jnp.where(arrived, old, new), state.pace, next_pace(state.pace, length, error))
    weights, now = jnp.where(accepted, after, state.weights), jnp.where(accepted, time, state.time)
    return _State(weights, now, pace, loss, arrived, failed), _Attempt(accepted, time, after, dense)


def _path_losses(
    fields: Any, weights: Float[np.ndarray, "run time weights"], progress: bool
) -> Float[np.ndarray, "run time"]:
    """The losses along a path, at any number of times. One compiled program serves them all."""
    runs, times, size = weights.shape
    pieces = -(-times // _AT_ONCE)
    padded = np.zeros((runs, pieces * _AT_ONCE, size))
    padded[:, :times] = weights
    losses = np.empty(padded.shape[:2])
    with Meter("losses along the runs", pieces, shown=progress) as meter:
        for piece in range(pieces):
            part = slice(piece * _AT_ONCE, (piece + 1) * _AT_ONCE)
            losses[:, part] = _some_losses(fields, padded[:, part])
            meter.update(piece + 1)
    return losses[:, :times]


@quick_jit
def _some_losses(fields: Any, weights: Float[Array | np.ndarray, "run time weights"]) -> Float[Array, "run time"]:
    return over_runs(fields, lambda field, path: jax.lax.map(field.loss, path), weights)


def _path(
    attempts: _Attempt, run: int, start: Float[np.ndarray, " weights"], moments: Float[np.ndarray, " time"]
) -> Float[np.ndarray, "time weights"]:
    """The weights of a run at these times, from the path between steps."""
    accepted = np.flatnonzero(attempts.accepted[:, run])
    times = np.concatenate([[0.0], attempts.time[accepted, run]])
    states = np.concatenate([start[None], attempts.weights[accepted, run]])
    if accepted.size == 0:
        return np.broadcast_to(states, (moments.size, states.shape[1]))
    place = np.searchsorted(times[1:], moments).clip(0, accepted.size - 1)
    fraction = (moments - times[place]) / (times[place + 1] - times[place])
    return between(fraction, states[place], states[place + 1], attempts.dense[accepted[place], run])
