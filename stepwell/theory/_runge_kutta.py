r"""Explicit steps of many systems of equations side by side, each with a step size of its own.

The method is that of Dormand and Prince, of order 8 with errors estimated at orders 5 and 3 and a dense output of order
7 (Hairer, Nørsett and Wanner, "Solving Ordinary Differential Equations I", II.5 and II.6; `scipy.integrate.DOP853` has
its coefficients). Arrays are of shape (state, run): the run comes last, so that all arithmetic is along it. Sums are in
one order whatever runs are beside a run, which those of BLAS are not; so it has the same digits alone and among others,
if there are at least two columns.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.integrate import DOP853

States = Float[np.ndarray, "state run"]
Field = Callable[[States, States], None]
"""Writes the derivatives of the states, the first argument, into the second."""

_STAGES = 12
SLOPES = _STAGES + 1
"""Derivatives that a step keeps: one of each stage, and that of its end."""
_TO_STAGE = [np.ascontiguousarray(DOP853.A[stage, :stage]) for stage in range(_STAGES)]
_ERRORS = np.stack([DOP853.E5, DOP853.E3])
_TINY = 1e-300
_SAFETY, _LEAST, _MOST = 0.9, 0.2, 5.0
"""Of the step that the error allows, and by how much a step may change: those of Hairer, Nørsett and Wanner."""
_HALVINGS, _LEVEL = 60, 1e-12
"""How often a crossing is sought anew, at most, and how near, relative to the height of the step. Some eight do."""


class Attempt(NamedTuple):
    """A step that has been tried: where it leads, and its error, in units of what is allowed."""

    states: States
    error: Float[np.ndarray, " run"]

    @property
    def accepted(self) -> Bool[np.ndarray, " run"]:
        """Whether it is accurate enough; not if its error is nan."""
        return self.error < 1


def attempt(
    field: Field,
    states: States,
    slopes: Float[np.ndarray, "slope state run"],
    step: Float[np.ndarray, " run"],
    size: States,
    tolerance: float | Float[np.ndarray, " run"],
) -> Attempt:
    """Try a step from `states`. `slopes[0]` must be the derivative there; the others are written.

    The error of each entry of the state is compared with `tolerance` times the sum of its own size and `size`.
    """
    flat = slopes.reshape(SLOPES, -1)
    for stage in range(1, _STAGES):
        field(_after(states, _TO_STAGE[stage], flat[:stage], step), slopes[stage])
    ends = _after(states, DOP853.B, flat[:_STAGES], step)
    field(ends, slopes[_STAGES])
    errors = np.einsum("ek,kn->en", _ERRORS, flat).reshape(2, *states.shape)
    allowed = np.maximum(np.abs(states), np.abs(ends))
    allowed += size
    count = np.count_nonzero(allowed, axis=0)  # a run may have zeros where another has weights: they do not count
    errors /= np.maximum(allowed, _TINY, out=allowed)
    fifth, third = np.einsum("eny,eny->ey", errors, errors)
    norm = np.sqrt((fifth + 0.01 * third) * count)
    error = (step / tolerance) * np.divide(fifth, norm, out=np.zeros_like(norm), where=norm != 0)
    return Attempt(ends, error)


def next_step(step: Float[np.ndarray, " run"], error: Float[np.ndarray, " run"]) -> Float[np.ndarray, " run"]:
    """How long the next step may be, after one of this error."""
    factor = np.clip(_SAFETY * np.maximum(error, 1e-100) ** (-1 / 8), _LEAST, _MOST)
    return step * np.where(np.isnan(factor), _LEAST, factor)


def _after(states: States, weights: np.ndarray, slopes: np.ndarray, step: np.ndarray) -> States:
    moved = np.einsum("k,kn->n", weights, slopes).reshape(states.shape)
    moved *= step
    moved += states
    return moved


class DenseOutput:
    """The solution within a step."""

    def __init__(
        self,
        field: Field,
        states: States,
        ends: States,
        slopes: Float[np.ndarray, "slope state run"],
        step: Float[np.ndarray, " run"],
    ):
        extended = np.concatenate([slopes, np.empty((len(DOP853.A_EXTRA), *states.shape))])
        flat = extended.reshape(len(extended), -1)
        for row, weights in enumerate(DOP853.A_EXTRA, start=SLOPES):
            field(_after(states, weights[:row], flat[:row], step), extended[row])
        change = ends - states
        first, last = step * slopes[0], step * slopes[_STAGES]
        higher = np.einsum("ek,kn->en", DOP853.D, flat).reshape(-1, *states.shape) * step
        self._begin = states
        self._terms = [change, first - change, 2 * change - (first + last), *higher]

    def __call__(self, part: Float[np.ndarray, " run"]) -> States:
        """The states after this part of the step."""
        rest = 1 - part
        states = np.zeros_like(self._begin)
        for number, term in enumerate(reversed(self._terms)):
            states += term
            states *= part if number % 2 == 0 else rest
        return states + self._begin


def crossing(
    height: Callable[[Float[np.ndarray, " run"]], Float[np.ndarray, " run"]],
    first: Float[np.ndarray, " run"],
    last: Float[np.ndarray, " run"],
) -> Float[np.ndarray, " run"]:
    """Where between 0 and 1 functions are zero that are `first` < 0 at 0 and `last` ≥ 0 at 1 (the Illinois method)."""
    low, high, below, above = np.zeros_like(first), np.ones_like(first), first, last
    middle, side, done = high, np.zeros_like(first), np.zeros(first.shape, bool)
    for _ in range(_HALVINGS):
        # One that is found stays, whatever others are sought beside it.
        middle = np.where(done, middle, np.clip(low - below * (high - low) / (above - below), low, high))
        value = height(middle)
        done |= np.abs(value) <= _LEVEL * (last - first)
        if done.all():
            break
        up = value >= 0
        now = np.where(up, 1.0, -1.0)
        # An end that has stayed twice is given half its height, so that the other one does not creep.
        half = np.where(now == side, 0.5, 1.0)
        below, above = np.where(up, below * half, value), np.where(up, value, above * half)
        low, high, side = np.where(up, low, middle), np.where(up, middle, high), now
    return middle
