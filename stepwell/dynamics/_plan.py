"""What a solver of the flow is asked to do, and what it returns."""

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell.models import AbstractModel

from ._checkpoint import Saves
from ._ensemble import Ensemble

Spacing = Literal["linear", "log"]

_PATIENCE = 1e12
"""A run to convergence may take this over the scale of its initial weights: plateaus last as long as 1/(λ² scale)."""
_FIRST_LOG_TIME = 1e-4
"""Log-spaced save times begin at this fraction of the last."""


class Plan(NamedTuple):
    """How far a solver integrates, with which tolerances, and at which times it saves."""

    until: float | None
    """Stop at this time, or None: at convergence."""
    targets: Float[np.ndarray, " run"] | None
    """Losses at which a run counts as converged."""
    starts: Float[np.ndarray, " run"] | None
    """The losses of the runs at the start."""
    saves: int | Float[np.ndarray, " time"]
    """Save times, or how many over the whole run."""
    spacing: Spacing
    rtol: float
    atol: float
    patience: float
    """A run to convergence is given up at this time."""
    progress: bool
    checkpoint: Saves = Saves()
    """Where the state of the solver is saved, and what was saved before."""

    def nearness(self, loss: float) -> float:
        """How far a run to convergence has come, from 0 to 1, by the loss it has shed."""
        assert self.targets is not None and self.starts is not None
        return float(np.clip((self.starts.max() - loss) / (self.starts.max() - self.targets.min()), 0.0, 1.0))

    def verdict(self, losses: Float[np.ndarray, " run"], time: float) -> tuple[str, str]:
        """Outcome and message of runs that ended at a time with these losses."""
        if self.targets is None:
            return "finished", ""
        if np.all(losses <= self.targets):
            return "converged", ""
        return "stuck", (
            f"at time {time:.3g} the loss rests at {losses.max():.6g}, above the lowest, {self.targets.min():.6g}: "
            "this start leads to another fixed point; give until= a time, or start elsewhere"
        )

    def times(self, end: float) -> Float[np.ndarray, " time"]:
        """The save times of a run that ended at `end`."""
        if not isinstance(self.saves, int):
            return self.saves[self.saves <= end]
        if end == 0.0:
            return np.zeros(1)
        if self.spacing == "linear":
            return np.linspace(0.0, end, self.saves)
        return np.concatenate([[0.0], np.geomspace(_FIRST_LOG_TIME * end, end, self.saves - 1)])


class Solution(NamedTuple):
    """What a solver returns: saved times and weights, how it ended and how much work that took."""

    times: Float[np.ndarray, " time"]
    weights: Float[np.ndarray, "run time weights"]
    outcome: str
    message: str
    work: dict[str, int]
    losses: Float[np.ndarray, "run time"] | None = None
    """Losses at the saved times, or None if the solver has not computed them."""


def make_plan(
    template: AbstractModel,
    objective: Any,
    initial: Float[Array, "run weights"],
    starts: Float[np.ndarray, " run"] | None,
    *,
    until: float | Literal["converged"],
    save: int | np.ndarray,
    spacing: Spacing,
    rtol: float,
    atol: float | None,
    gap: float,
    progress: bool,
    checkpoint: Saves,
) -> Plan:
    """The plan that the keywords of `flow` describe; `starts` are the losses of the initial weights, or None."""
    _check.one_of("spacing", spacing, ("linear", "log"))
    if starts is not None and not np.all(np.isfinite(starts)):
        raise InvalidInput("the loss of the initial weights is not finite; start from smaller ones")
    return Plan(
        until=None if until == "converged" else _check.number("until", until, least=0.0, above=True),
        targets=None if starts is None else _targets(template, objective, starts, gap),
        starts=starts,
        saves=_saves(save, until),
        spacing=spacing,
        rtol=_check.number("rtol", rtol, least=0.0, above=True),
        atol=_tolerance(atol, rtol, initial),
        patience=_PATIENCE / _scale(initial),
        progress=progress,
        checkpoint=checkpoint,
    )


def _saves(save: int | np.ndarray, until) -> int | np.ndarray:
    if isinstance(save, int | np.integer):
        return _check.whole("save", save, least=2)
    times = np.asarray(save, dtype=np.float64)
    if times.ndim != 1 or times.size == 0 or np.any(np.diff(times) <= 0) or times[0] < 0:
        raise InvalidInput("save times must be a rising list of times from 0 on; or give a number of them")
    if until != "converged" and times[-1] > until:
        raise InvalidInput(
            f"the last save time, {times[-1]:g}, is after the end, {until:g}; give earlier times, or a larger until="
        )
    return times


def _tolerance(atol: float | None, rtol: float, initial: Array) -> float:
    if atol is not None:
        return _check.number("atol", atol, least=0.0, above=True)
    return min(1e-5 * _scale(initial), rtol)


def _scale(initial: Array) -> float:
    """Root mean square of the initial weights."""
    largest = float(np.abs(np.asarray(initial)).max())
    if largest == 0.0:
        raise InvalidInput("all initial weights are zero, which is a fixed point; start from small random weights")
    if not np.isfinite(largest):
        raise InvalidInput("some initial weights are not finite; start from finite ones")
    return largest * float(np.sqrt(np.mean((np.asarray(initial) / largest) ** 2)))


def _targets(template: AbstractModel, objective: Any, starts: np.ndarray, gap: float) -> np.ndarray:
    """The loss at which each run counts as converged."""
    gap = _check.number("gap", gap, least=0.0, most=1.0, above=True)
    objectives = (
        [objective.member(i) for i in range(objective.size)] if isinstance(objective, Ensemble) else [objective]
    )
    floors = [each.floor(template) for each in objectives]
    if any(floor is None for floor in floors):
        raise InvalidInput(
            f"the lowest loss of {type(template).__name__} under {type(objectives[0]).__name__} is not known, so "
            "convergence cannot be distinguished from a plateau; give until= a time"
        )
    low = np.broadcast_to(np.array(floors, dtype=float), starts.shape)
    return low + gap * np.abs(starts - low)
