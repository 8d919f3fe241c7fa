r"""The heads of many runs side by side, until the first head of each has gained enough.

Heads grow from w to order one as $1/(t_* - t)$. So that a step is a factor in the weights, and not only a part of the
time left, steps are in s with $dt/\tau = ds/\|W\|$, where $\|W\|$ is the norm of the weights of the run; t is one more
unknown. Growth is then exponential, at about the rate $\rho$ of the plateau. Each run has its own s and steps.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from .._runge_kutta import SLOPES, DenseOutput, Field, attempt, crossing, next_step
from ._heads import Heads, PerHead, Weights

TOLERANCE = 3e-9
"""The error of a step, relative to each weight and to the size of its head at first."""
_MOST_STEPS = 300
"""Some thirty are the rule."""
_FIRST = 0.4
"""The first step, in units of 1/ρ."""

PerRun = Float[np.ndarray, " run"]


@dataclass
class Waits:
    """Where each run ended: its weights, the time, and whether a head has gained enough."""

    weights: Weights
    time: PerRun
    crossed: Bool[np.ndarray, " run"]


def wait(
    heads: Heads,
    weights: Weights,
    *,
    rate: PerRun,
    enough: PerRun,
    sizes: PerHead,
    until: PerRun,
    tolerance: float,
) -> Waits:
    """The runs until a head gains `enough`, or the time `until`. On the plateau weights w grow at the `rate` times w.

    `sizes` are those of the heads at first, by which errors are measured; `tolerance` is the error of a step.
    """
    waits = Waits(weights.copy(), np.zeros(until.size), np.zeros(until.size, bool))
    shape = waits.weights.shape[:2]
    below = heads.gains(waits.weights).max(axis=0) - enough
    waits.crossed[:] = below >= 0
    moving = np.any(waits.weights**2 > 0, axis=(0, 1))  # not where squares underflow
    at = np.flatnonzero(moving & ~waits.crossed)
    if at.size == 0:
        return waits
    states = np.concatenate([waits.weights.reshape(-1, until.size), np.zeros((1, until.size))])
    size = np.concatenate([np.broadcast_to(sizes, waits.weights.shape).reshape(-1, until.size), states[-1:]])
    memory, step = np.empty(SLOPES * states.size), _FIRST / rate
    if at.size < until.size:
        heads, states, size, step, until, enough, below = _kept(at, heads, states, size, step, until, enough, below)
    field, slopes = _field(heads, shape), _slopes(memory, states)
    field(states, slopes[0])
    for _ in range(_MOST_STEPS):
        tried = attempt(field, states, slopes, step, size, tolerance)
        above = heads.gains(tried.states[:-1].reshape(*shape, -1)).max(axis=0) - enough
        accepted = tried.accepted
        crossed = accepted & (above >= 0)
        over = crossed | (accepted & (tried.states[-1] > until))
        if crossed.any():
            these = np.flatnonzero(crossed)
            own = heads.take(these)
            ends = _at_crossing(
                own, _field(own, shape), enough[these], states[:, these], tried.states[:, these], slopes[:, :, these],
                step[these], below[these], above[these],
            )  # fmt: skip
            waits.weights[..., at[these]] = ends[:-1].reshape(*shape, -1)
            waits.time[at[these]] = ends[-1]
            waits.crossed[at[these]] = ends[-1] <= until[these]
        step = next_step(step, tried.error)
        if accepted.all():
            states, slope, below = tried.states, slopes[-1], above
        else:
            states, slope = np.where(accepted, tried.states, states), np.where(accepted, slopes[-1], slopes[0])
            below = np.where(accepted, above, below)
        if over.any():
            keep = np.flatnonzero(~over)
            if keep.size == 0:
                break
            at, slope = at[keep], slope[:, keep]
            heads, states, size, step, until, enough, below = _kept(
                keep, heads, states, size, step, until, enough, below
            )
            field, slopes = _field(heads, shape), _slopes(memory, states)
        slopes[0] = slope
    return waits


def _kept(keep, heads: Heads, *arrays: np.ndarray) -> tuple:
    return heads.take(keep), *(array[..., keep] for array in arrays)


def _slopes(memory: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Room for the slopes of these states."""
    return memory[: SLOPES * states.size].reshape(SLOPES, *states.shape)


def _field(heads: Heads, shape: tuple[int, ...]) -> Field:
    """The derivatives by s of the weights and of the time."""

    ones = np.ones(shape[0] * shape[1])

    def field(states: np.ndarray, slopes: np.ndarray) -> None:
        weights, moved = states[:-1], slopes[:-1]
        heads.move(weights.reshape(*shape, -1), moved.reshape(*shape, -1))
        speed = 1 / np.sqrt(ones.dot(weights * weights))
        moved *= speed
        slopes[-1] = speed

    return field


def _at_crossing(
    heads: Heads,
    field: Field,
    enough: PerRun,
    states: np.ndarray,
    ends: np.ndarray,
    slopes: np.ndarray,
    step: PerRun,
    below: PerRun,
    above: PerRun,
) -> np.ndarray:
    """The states at which a head has gained just enough."""
    path, shape = DenseOutput(field, states, ends, slopes, step), (-1, heads.count, step.size)

    def height(part: PerRun) -> PerRun:
        return heads.gains(path(part)[:-1].reshape(shape)).max(axis=0) - enough

    return path(crossing(height, below, above))
