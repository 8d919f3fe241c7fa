r"""The heads of many runs side by side, until the first head of each has gained enough.

Heads grow from w to order one as $1/(t_* - t)$. So that a step is a factor in the weights, and not only a part of the
time left, steps are in s with $dt/\tau = ds/\|W\|$, where $\|W\|$ is the norm of the weights of the run; t is one more
unknown. Growth is then exponential, at about the rate $\rho$ of the plateau. Each run has its own s and steps.

Explicit steps will do, but where a head keeps what it has learned while something far slower grows. Runs that would
take too many are followed by an implicit method, one at a time.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from .._integrate import IntegrationFailed, integrate
from .._runge_kutta import SLOPES, DenseOutput, Field, attempt, crossing, next_step
from ._heads import Heads, PerHead, StiffHeads, Weights, banded

TOLERANCE = 3e-9
"""The error of a step, relative to each weight and to the size of its head at first."""
_EXPLICIT = 300
"""Explicit steps before the implicit method is used. Some thirty are the rule."""
_STIFF = 100.0
"""How much faster what a head has learned may be than the plateau, for explicit steps to be tried."""
_FIRST = 0.4
"""The first step, in units of 1/ρ."""

PerRun = Float[np.ndarray, " run"]


@dataclass
class Waits:
    """Where each run ended: its weights, the time, and whether a head has gained enough."""

    weights: Weights
    time: PerRun
    crossed: Bool[np.ndarray, " run"]
    steps: Int[np.ndarray, " run"]
    """Those of the implicit method."""
    reasons: dict[int, str]
    """Why runs were not followed, by their place."""


def wait(
    heads: Heads,
    weights: Weights,
    *,
    rate: float,
    enough: float,
    sizes: PerHead,
    until: PerRun,
    most: Int[np.ndarray, " run"],
    tolerance: float,
) -> Waits:
    """The runs until a head gains `enough`, or the time `until`.

    `sizes` are those of the heads at first, by which errors are measured. The implicit method may take `most` steps.
    `tolerance` is the error of an explicit step.
    """
    runs = until.size
    waits = Waits(weights.copy(), np.zeros(runs), np.zeros(runs, bool), np.zeros(runs, int), {})
    stiff = _explicit(heads, waits, rate, enough, sizes, until, tolerance)
    for run in np.flatnonzero(stiff).tolist():
        scale = float(sizes[:, run].max())
        _implicit(heads.take(np.array([run])), waits, run, enough, scale, float(until[run]), int(most[run]))
    return waits


def _explicit(
    heads: Heads, waits: Waits, rate: float, enough: float, sizes: PerHead, until: PerRun, tolerance: float
) -> Bool[np.ndarray, " run"]:
    """Follow all runs, but leave those at their initial weights that would take too many steps; which these are."""
    shape = waits.weights.shape[:2]
    below = heads.gains(waits.weights).max(axis=0) - enough
    waits.crossed[:] = below >= 0
    stiff = ~waits.crossed & np.any(heads.driving * (heads.ends > 0) > _STIFF * rate, axis=(0, 1))
    moving = np.any(waits.weights**2 > 0, axis=(0, 1))  # not where squares underflow
    at = np.flatnonzero(moving & ~waits.crossed & ~stiff)
    if at.size == 0:
        return stiff & moving
    states = np.concatenate([waits.weights.reshape(-1, until.size), np.zeros((1, until.size))])
    size = np.concatenate([np.broadcast_to(sizes, waits.weights.shape).reshape(-1, until.size), states[-1:]])
    memory, step = np.empty(SLOPES * states.size), np.full(until.size, _FIRST / rate)
    if at.size < until.size:
        heads, states, size, step, until, below = _kept(at, heads, states, size, step, until, below)
    field, slopes = _field(heads, shape), _slopes(memory, states)
    field(states, slopes[0])
    for _ in range(_EXPLICIT):
        tried = attempt(field, states, slopes, step, size, tolerance)
        above = heads.gains(tried.states[:-1].reshape(*shape, -1)).max(axis=0) - enough
        accepted = tried.accepted
        crossed = accepted & (above >= 0)
        over = crossed | (accepted & (tried.states[-1] > until))
        if crossed.any():
            these = np.flatnonzero(crossed)
            own = heads.take(these)
            ends = _at_crossing(
                own, _field(own, shape), enough, states[:, these], tried.states[:, these], slopes[:, :, these],
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
            heads, states, size, step, until, below = _kept(keep, heads, states, size, step, until, below)
            field, slopes = _field(heads, shape), _slopes(memory, states)
        slopes[0] = slope
    else:
        stiff[at] = True
    return stiff & moving


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
    enough: float,
    states: np.ndarray,
    ends: np.ndarray,
    slopes: np.ndarray,
    step: PerRun,
    below: PerRun,
    above: PerRun,
) -> np.ndarray:
    """The states at which a head has gained just enough."""
    path, shape = DenseOutput(field, states, ends, slopes, step), heads.free.shape[1:]

    def height(part: PerRun) -> PerRun:
        return heads.gains(path(part)[:-1].reshape(-1, *shape)).max(axis=0) - enough

    return path(crossing(height, below, above))


def _implicit(heads: Heads, waits: Waits, run: int, enough: float, scale: float, until: float, most: int) -> None:
    """Follow one run anew: at rest, where explicit steps have led, LSODA would not notice what is stiff."""
    start = np.ascontiguousarray(waits.weights[..., run].T)
    stiff, width = StiffHeads(heads), start.shape[1]

    def reached(state: np.ndarray) -> float:
        return float(heads.gains(np.ascontiguousarray(state.reshape(start.shape).T)[..., None]).max()) - enough

    try:
        path = integrate(
            lambda state: stiff.velocity(state.reshape(start.shape)).ravel(),
            start.ravel(),
            until,
            jacobian=lambda state: banded(stiff.jacobian(state.reshape(start.shape))),
            event=reached,
            band=width - 1,
            scale=scale,
            most=most,
            shown=waits.time.size == 1,
        )
    except IntegrationFailed as error:
        waits.reasons[run] = str(error)
        return
    waits.weights[..., run] = path.state.reshape(start.shape).T
    waits.time[run] = path.time
    waits.crossed[run], waits.steps[run] = path.crossed, path.steps
