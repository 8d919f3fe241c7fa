"""The plateaus of many runs side by side: heads that are still small, and do not feel each other, until one has grown.

Each run has its own steps in the s of `Narrow.field_by_length`.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from .._runge_kutta import SLOPES, attempt, next_step
from ._heads import PerHead, Weights
from ._narrow import Narrow
from ._trace import Trace

_MOST_STEPS = 300
"""Some twenty are the rule."""
_FIRST = 0.4
"""The first step, in units of 1/ρ."""
_LATE, _AIM = np.log(2.0), np.log(1.4)
"""A step that ends with so much more than enough is made shorter, so as to end with a little more."""
_SHORTER = 0.9
"""... to this part of its length at most."""

PerRun = Float[np.ndarray, " run"]


@dataclass
class Waits:
    """Where each run ended: its weights, the time, the head that had grown most, and whether that was enough."""

    weights: Weights
    time: PerRun
    head: Int[np.ndarray, " run"]
    crossed: Bool[np.ndarray, " run"]


def wait(
    narrow: Narrow,
    weights: Weights,
    *,
    rate: PerRun,
    enough: PerRun,
    sizes: PerHead,
    until: PerRun,
    tolerance: PerRun,
    trace: Trace | None = None,
    since: float = 0.0,
) -> Waits:
    r"""The runs until a head has gained `enough`, $2v\dot v$, or until the time `until`.

    On the plateau weights w grow at the `rate` times w. `sizes` are those of the heads at first, by which errors are
    measured; `tolerance` is the error of a step. The path of a run is written in `trace`, with times `since` its begin.
    """
    runs, shape = until.size, weights.shape[:2]
    waits = Waits(weights.copy(), np.zeros(runs), np.zeros(runs, int), np.zeros(runs, bool))
    at, step = np.arange(runs), _FIRST / rate
    states = np.concatenate([weights.reshape(-1, runs), np.zeros((1, runs))])
    size = np.concatenate([np.broadcast_to(sizes, weights.shape).reshape(-1, runs), states[-1:]])
    memory = np.empty(SLOPES * states.size)
    field, slopes = narrow.field_by_length(shape), memory.reshape(SLOPES, *states.shape)
    field(states, slopes[0])
    powers = _powers(states, slopes[0], shape[1])
    below, over = _log(powers.max(axis=0) / enough), ~np.any(states[:-1] ** 2 > 0, axis=0)  # squares that underflow
    for _ in range(_MOST_STEPS):
        crossed = ~over & (below >= 0)
        over |= crossed | (states[-1] > until)
        if over.any():
            done = np.flatnonzero(over)
            waits.weights[..., at[done]] = states[:-1, done].reshape(*shape, -1)
            waits.time[at[done]], waits.head[at[done]] = states[-1, done], np.argmax(powers[:, done], axis=0)
            waits.crossed[at[done]] = crossed[done] & (states[-1, done] <= until[done])
            keep = at_least_two(np.flatnonzero(~over))
            if keep.size == 0:
                break
            slope, narrow, powers = slopes[0][:, keep], narrow.take(keep), powers[:, keep]
            at, states, size = at[keep], states[:, keep], size[:, keep]
            step, until, enough, below, tolerance = (each[keep] for each in (step, until, enough, below, tolerance))
            field, slopes = narrow.field_by_length(shape), memory[: SLOPES * states.size].reshape(SLOPES, *states.shape)
            slopes[0] = slope
        tried = attempt(field, states, slopes, step, size, tolerance)
        reached = _powers(tried.states, slopes[-1], shape[1])
        above = _log(reached.max(axis=0) / enough)
        late = tried.accepted & (above > _LATE)
        if trace is not None and not late[0]:
            trace.step(field, states, tried, slopes, step, since)
        accepted = tried.accepted & ~late
        step = np.where(
            late, step * np.minimum((_AIM - below) / (above - below), _SHORTER), next_step(step, tried.error)
        )
        states, slopes[0] = np.where(accepted, tried.states, states), np.where(accepted, slopes[-1], slopes[0])
        below, powers, over = (
            np.where(accepted, above, below),
            np.where(accepted, reached, powers),
            np.zeros(at.size, bool),
        )
    return waits


def at_least_two(runs: Int[np.ndarray, " run"]) -> Int[np.ndarray, " column"]:
    """The same; a run that is alone twice: sums over one column would be in another order (see `_runge_kutta`)."""
    return np.repeat(runs, 2) if runs.size == 1 else runs


def _powers(states: np.ndarray, slopes: np.ndarray, heads: int) -> PerHead:
    r"""$2v\dot v$ of each head."""
    return 2 * states[:heads] * (slopes[:heads] / slopes[-1])


def _log(part: PerRun) -> PerRun:
    return np.log(np.maximum(part, 1e-300))
