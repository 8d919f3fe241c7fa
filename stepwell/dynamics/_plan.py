"""The interface of a solver of the flow: what it is asked to do, and what it returns."""

import abc
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.interrupt import Interruptible, interrupted
from stepwell._util.progress import Meter
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._checkpoint import Saves
from ._ensemble import Ensemble
from ._record import FLOW_POINTS, Record

_PATIENCE = 1e24
"""A run to convergence is given up after so many of the times in which its initial weights move by their own size."""
_AT_REST = 1.0
"""A run to convergence whose gradient is zero has no such time, and is given up at this one."""
_PART = 1e-3
"""Of the lowest loss, and of the last drop to it, by which a converged loss may exceed it."""
MOST_STEPS = 100_000
"""Steps that a run may take; where there are more, the solver does not get through. Runs to the end take some hundreds
to some thousands."""
_ROUNDING = 32 * float(np.finfo(float).eps)
"""Error of a computed loss, relative to that of zero weights: it is a difference of such numbers."""
_ALMOST = 0.99
"""More than this is not done before the end."""


class Plan(NamedTuple):
    """How far a solver integrates, with which tolerances, and at which times it saves."""

    until: float | None
    """Stop at this time, or None: at convergence."""
    targets: Float[np.ndarray, " run"] | None
    """Losses at which a run counts as converged."""
    starts: Float[np.ndarray, " run"] | None
    """The initial losses of the runs."""
    record: Record
    """At which times weights are saved."""
    rtol: float
    atol: float
    patience: float
    """A run to convergence is given up at this time."""
    progress: bool
    checkpoint: Saves = Saves()
    """Where the state of the solver is saved, and what was saved before."""

    levels: Float[np.ndarray, " level"] | None = None
    """Losses of the plateaus on the way to convergence, falling, where they are known."""
    time_factor: float = 1.0
    """What times are multiplied by where a person reads them."""

    def said(self, time: Any, digits: int = 6) -> str:
        """A time, as messages have it."""
        return f"time {self.time_factor * time:.{digits}g}"

    def done(self, loss: float, time: float) -> float:
        """How far the slowest run has come, from 0 to 1: by time or, to convergence, by the levels of the loss passed.

        Each level counts the same, since the last ones, where little loss is left, take longest. Where levels are not
        known, the loss that was shed counts. It is 1 at the end only.
        """
        if self.until is not None:
            return time / self.until
        assert self.targets is not None and self.starts is not None
        if loss <= self.targets.min():
            return 1.0
        ends = np.array([self.starts.max(), self.targets.min()]) if self.levels is None else self.levels
        passed = float(np.interp(-loss, -ends, np.arange(ends.size)))
        return min(passed / max(ends.size - 1, 1), _ALMOST)

    def note(self, loss: float, time: float) -> str:
        """Loss and time, for a line of progress; to convergence also how many levels of the loss were passed."""
        said = f"loss {loss:.4g}, {self.said(time, 3)}"
        if self.until is not None or self.levels is None or self.levels.size < 2:
            return said
        halves = (self.levels[:-1] + self.levels[1:]) / 2
        return f"{said}, {int(np.sum(loss <= halves))} of {halves.size} levels passed"

    def verdict(self, losses: Float[np.ndarray, " run"], time: float) -> tuple[str, str]:
        """Outcome and message of runs that ended at a time with these losses."""
        if self.targets is None:
            return "finished", ""
        if np.all(losses <= self.targets):
            return "converged", ""
        above = int(np.argmax(losses - self.targets))
        if self.patience == _AT_REST:
            return "stuck", (
                f"the loss rests at {losses[above]:.6g}, above the lowest, {self.targets[above]:.6g}: the gradient of "
                "the initial weights is zero in float64, and they never move; begin with larger weights"
            )
        return "stuck", (
            f"at {self.said(time, 3)} the loss rests at {losses[above]:.6g}, above the lowest, "
            f"{self.targets[above]:.6g}, after {_PATIENCE:.0e} times the time in which the initial weights move: this "
            "initialization leads to another fixed point, or so close to one that it is not left, or the model cannot "
            "have the best map of its rank, as where its weights are tied; give until= a time, or another seed"
        )

    def exhausted(self, steps: int, time: float) -> tuple[str, str]:
        """Outcome and message of a run that was given up at a time, after so many steps."""
        wanted, instead = "convergence", "until= a time, as a run that rests above the lowest loss needs"
        if self.until is not None:
            wanted, instead = self.said(self.until, 3), "an earlier until= (without one a run ends at convergence)"
        return "solver failed", (
            f"not followed beyond {self.said(time, 4)}, since {steps} steps did not lead to {wanted}; try a larger "
            f"rtol, another solver, or {instead}"
        )

    def interrupted(self, time: float) -> tuple[str, str]:
        """Outcome and message of a run that a signal ended at a time."""
        return "interrupted", f"{interrupted()} at {self.said(time)}; what came before is kept"

    def times(self, end: float, steps: np.ndarray | None = None) -> Float[np.ndarray, " time"]:
        """The save times of a run that ended at `end`, with `steps` of the solver, of one run or many, at these times.

        Spaced by steps they are dense where the weights move fast: as many in every step, or one in every so many. A
        solver that does not say where its steps were has them evenly spaced in time.
        """
        if end > 0.0 and self.record.spacing == "steps" and steps is not None:
            taken = np.unique(np.concatenate([[0.0], steps[(steps > 0.0) & (steps < end)], [end]]))
            return np.interp(np.linspace(0.0, taken.size - 1.0, self.points), np.arange(taken.size), taken)
        return self.record.times(end)

    @property
    def points(self) -> int:
        """How many times are saved in a run that comes to its end."""
        points = self.record.points
        return len(points) if isinstance(points, tuple) else FLOW_POINTS if points is None else int(points)  # pyright: ignore


class Solution(NamedTuple):
    """What a solver returns: saved times and weights, how it ended and how much work that took."""

    times: Float[np.ndarray, " time"]
    weights: Float[np.ndarray, "run time weights"]
    outcome: str
    message: str
    work: dict[str, int]
    losses: Float[np.ndarray, "run time"] | None = None
    """Losses at the saved times, or None if the solver has not computed them."""


class Start(NamedTuple):
    """What is known of every run before it begins."""

    losses: Float[np.ndarray, " run"]
    zeros: Float[np.ndarray, " run"]
    """The losses of zero weights."""
    rates: Float[np.ndarray, " run"]
    """The speed of the weights over their size: one over the time in which they move by that."""


def make_plan(
    template: AbstractModel,
    objective: Any,
    initial: Float[Array, "run weights"],
    start: Start | None,
    until: float | Literal["converged"],
    record: Record,
    tolerances: tuple[float, float | None, float],
    progress: bool,
    checkpoint: Saves,
    time_factor: float,
) -> Plan:
    """The plan that the keywords of `flow` describe. What the runs begin with is needed where they shall converge."""
    rtol, atol, gap = tolerances
    if record.every is not None:
        raise InvalidInput("every counts steps, and a flow has times; give the record points=, a number or the times")
    if isinstance(record.points, tuple) and until != "converged" and record.points[-1] > until:
        raise InvalidInput(
            f"the last of the points, {record.points[-1]:g}, is after the end, {until:g}; give earlier times, or a "
            "larger until="
        )
    if start is not None and not np.all(np.isfinite(start.losses)):
        raise InvalidInput("the loss of the initial weights is not finite; start from smaller ones")
    return Plan(
        until=None if until == "converged" else checks.number("until", until, least=0.0, above=True),
        targets=None if start is None else _targets(template, objective, start, gap, progress),
        starts=None if start is None else start.losses,
        record=record,
        rtol=checks.number("rtol", rtol, least=0.0, above=True),
        atol=_tolerance(atol, rtol, initial),
        patience=np.inf if start is None else _patience(start),
        progress=progress,
        checkpoint=checkpoint,
        levels=None if start is None else _levels(template, objective),
        time_factor=checks.number("time_factor", time_factor, least=0.0, above=True),
    )


def _levels(template: AbstractModel, objective: Any) -> np.ndarray | None:
    """Of an ensemble of objectives those of the first."""
    levels = (objective.member(0) if isinstance(objective, Ensemble) else objective).plateaus(template)
    return None if levels is None or levels.size < 2 or np.any(np.diff(levels) >= 0) else levels


def _tolerance(atol: float | None, rtol: float, initial: Array) -> float:
    if atol is not None:
        return checks.number("atol", atol, least=0.0, above=True)
    weights = np.asarray(initial)
    largest = float(np.abs(weights).max())
    if largest == 0.0:
        raise InvalidInput("all initial weights are zero, which is a fixed point; start from small random weights")
    if not np.isfinite(largest):
        raise InvalidInput("some initial weights are not finite; start from finite ones")
    made = min(1e-5 * largest * float(np.sqrt(np.mean((weights / largest) ** 2))), rtol)
    if made < np.finfo(float).tiny:
        raise InvalidInput(
            f"the initial weights are at most {largest:.3g}, of which float64 cannot hold a hundred-thousandth, the "
            "error allowed; begin with weights above 1e-300"
        )
    return made


def _patience(start: Start) -> float:
    """When a run to convergence is given up. The flow has no time of its own but that in which weights move."""
    moving = start.rates[(start.rates > 0) & np.isfinite(start.rates)]
    return _PATIENCE / float(moving.min()) if moving.size else _AT_REST


def _targets(template: AbstractModel, objective: Any, start: Start, gap: float, progress: bool) -> np.ndarray:
    r"""The loss at which each run counts as converged, $L_* + \max(\epsilon, \min(g (L_0 - L_*), p L_*, p \Delta))$.

    $L_*$ is the lowest loss, $L_0$ the initial loss or that of zero weights, whichever is lower, g the gap and p
    `_PART`. $\Delta$ is the last drop: where it is small, a plateau lies close above $L_*$. $\epsilon$ is rounding.
    """
    gap = checks.number("gap", gap, least=0.0, most=1.0, above=True)
    size, floors, drops = objective.size if isinstance(objective, Ensemble) else 1, [], []
    with Meter("finding the lowest losses", size, shown=progress) as meter:
        for number in range(size):
            one = objective.member(number) if isinstance(objective, Ensemble) else objective
            floors.append(one.floor(template))
            if floors[-1] is None:
                raise InvalidInput(
                    f"the lowest loss of {type(template).__name__} under {type(one).__name__} is not known, so "
                    "convergence cannot be distinguished from a plateau; give until= a time"
                )
            drops.append(one.last_drop(template))
            if size > 1:
                meter.update(number + 1)
    low, drop = (np.broadcast_to(np.array(each, dtype=float), start.losses.shape) for each in (floors, drops))
    zeros = np.where(np.isfinite(start.zeros), start.zeros, start.losses)
    excess = np.minimum(gap * (np.minimum(start.losses, zeros) - low), _PART * np.fmin(low, drop))
    return low + np.maximum(excess, _ROUNDING * zeros)


class Goals:
    """Where each run ends: at a time, or before it when its loss is at a target."""

    def __init__(self, plan: Plan, runs: int):
        self.ends = np.full(runs, plan.patience if plan.until is None else plan.until)
        self.targets = np.full(runs, -np.inf) if plan.targets is None else plan.targets

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.ends, self.targets))


class Reached(NamedTuple):
    """Where the runs are after one call of a solver's program."""

    times: Float[np.ndarray, " run"]
    losses: Float[np.ndarray, " run"]
    arrived: Bool[np.ndarray, " run"]
    failed: Bool[np.ndarray, " run"]
    steps: int
    """How many a run has taken so far."""
    trouble: str | None = None
    """What the solver says about a run that failed."""


def follow(
    plan: Plan, goals: Goals, advance: Callable[[], Reached], saved: Callable[[], dict[str, Any]], most: int
) -> tuple[str, str]:
    """Outcome and message of runs that `advance` takes on, call by call, until all have arrived at one time.

    Runs that arrive before the last one go on to its time: all have the same save times. `most` steps are taken at the
    most, and `saved` returns the state for a checkpoint.
    """
    with Meter("flow", 1.0, shown=plan.progress) as meter, Interruptible() as ctrl_c:
        while True:
            now = advance()
            first, last, highest = float(now.times.min()), float(now.times.max()), float(now.losses.max())
            if np.any(now.failed):
                where, why = plan.said(now.times[now.failed].min()), f" ({now.trouble})" if now.trouble else ""
                return "solver failed", f"no step from {where} on is accurate{why}; try another rtol or atol"
            if np.all(now.arrived) and first == last:
                return plan.verdict(now.losses, last)
            if now.steps >= most:
                return plan.exhausted(now.steps, first)
            if np.all(now.arrived):
                goals.ends, goals.targets = np.full_like(goals.ends, last), np.full_like(goals.targets, -np.inf)
            elif ctrl_c.pressed:
                plan.checkpoint.save(saved)
                return plan.interrupted(first)
            plan.checkpoint.save_if_due(saved)
            meter.update(plan.done(highest, first), plan.note(highest, first))


class AbstractFlowSolver(abc.ABC):
    """Integrates the flow of one run, or of several side by side."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the solver in the provenance of a trajectory."""

    @abc.abstractmethod
    def form(self, objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
        """Return the same loss in the form that this solver follows fastest, for models like this one."""

    @abc.abstractmethod
    def numbers_held(self, weights: int, plan: Plan) -> int:
        """Return how many numbers it holds in memory for a run of so many weights, beside what is saved."""

    @abc.abstractmethod
    def solve(self, fields: Any, initial: Float[Array, "run weights"], plan: Plan) -> Solution:
        """Integrate to the end that the plan names. `fields` is one `Field` for all runs, or an ensemble of them."""
