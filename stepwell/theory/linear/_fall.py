"""The fall from one plateau to the next: the narrow networks of many runs, until each has settled."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from .._integrate import MOST_STEPS, IntegrationFailed, integrate
from .._runge_kutta import SLOPES, DenseOutput, attempt, crossing, next_step
from .._types import PerComponent
from ._heads import PerHead, Weights
from ._narrow import Maps, Narrow
from ._trace import Trace
from ._wait import at_least_two

_RECRUITED = 0.02
"""One that gains so much makes a drop of its own, or shares in one."""
_BLOCK = 0.1
"""What is left of G may differ from that of the next plateau by this: others have grown a little."""
_TURNED, _STILL = 1e-4, 10.0
"""Where any directions will do, it has settled when G would change by this part in the next wait, or by so many errors
of a step."""
_DECAYING = 1e-2
"""What is left of G decays if an entry does so at a rate above this part of that of the plateau."""
_LINEAR = 0.05
"""... and exponentially if it is this part of what is to be learned next at most."""
_RESTING = 1e-3
"""Heads of one pair that share a component and part again move G by more than this part of what small ones do."""
_SHORTER, _LONGER = 0.8, 1.2
"""After a step that was too long steps are so much shorter, and from then on may become so much longer each."""
_EXPLICIT = 600
"""Explicit steps before the implicit method is used. A hundred are the rule."""

_CHANGE = 1e-3
"""A time that is short beside all others."""
_ROUNDING = 1e-9
"""An event that is found is past by this part at most."""
_OVER = 1e-4
"""A path ends where the loss is above its level by this part of the last drop."""
_PATIENCE = 1e2
"""A run is given up after this many times in which the smallest head would be recruited."""

PerRun = Float[np.ndarray, " run"]


@dataclass(frozen=True)
class Ladder:
    """What all runs of a task share: `gains` of the useful components, `rates` of the plateaus, `rank` of a head."""

    gains: PerComponent
    rates: PerComponent
    rank: int

    def levels(self) -> PerComponent:
        """The excess of the loss on each plateau."""
        return np.append(np.cumsum(self.gains[::-1])[::-1], 0.0)

    def midpoints(self) -> PerComponent:
        """The excess of the loss halfway between levels; after the last there is none."""
        return np.append(self.levels()[:-1] - self.gains / 2, -np.inf)


@dataclass
class Fall:
    """Runs that fall: where they are, and what has happened on the way.

    - `names`: the number of each head in its run; of size 0 are places without one.
    - `first`: the first component that is followed; of those that are not, each run has learned `spent`, with heads
      that are not followed.
    - `noticed`: a head that gains so large a part of what it could learn becomes a member of the network.
    - `nudged`: a network has settled when the weights of others would still change by less than `near`, relatively, and
      they are so changed; if not, when G is that of the next plateau to `near`, relatively.
    - `tolerance`: the error of a step, relative to each weight and to the size of its head at first.
    - `learned`: how many components.
    - `recruited`: the heads that have made a drop, or shared in one; `before`: those that had when the fall began.
    - `times`, `heads`: of each drop; nan and -1 where it has not come.
    - `ties`: whether a head was recruited for it before the network had settled.
    - `settled`: whether a further plateau has begun.
    - `reasons`: why runs were not followed, by their place.
    - `trace`: where to write the path of the only run, which is then followed until its last drop is over.
    """

    weights: Weights
    sizes: PerHead
    names: Int[np.ndarray, "head run"]
    first: int
    spent: Int[np.ndarray, " run"]
    noticed: PerRun
    nudged: Bool[np.ndarray, " run"]
    near: PerRun
    tolerance: PerRun
    now: PerRun
    until: PerRun
    learned: Int[np.ndarray, " run"]
    recruited: Bool[np.ndarray, "head run"]
    before: Bool[np.ndarray, "head run"]
    times: Float[np.ndarray, "run component"]
    heads: Int[np.ndarray, "run component"]
    ties: Bool[np.ndarray, "run component"]
    settled: Bool[np.ndarray, " run"]
    reasons: dict[int, str]
    trace: Trace | None = None

    def drop(self, runs: np.ndarray, times: np.ndarray, speeds: Weights, members: PerHead) -> None:
        """The next drop of these runs, of the member that moves most: it lowers the loss most."""
        heads = np.argmax(np.sum(speeds**2, axis=0) * members, axis=0)
        self.times[runs, self.learned[runs]], self.heads[runs, self.learned[runs]] = times, self.names[heads, runs]
        self.learned[runs] += 1

    def recruit(self, runs: np.ndarray, heads: Bool[np.ndarray, "head run"]) -> None:
        """Recruit these heads."""
        tied = runs[heads.any(axis=0) & (self.recruited & ~self.before)[:, runs].any(axis=0)]
        self.ties[tied, np.minimum(self.learned[tied], self.ties.shape[1] - 1)] = True
        self.recruited[:, runs] |= heads


def fall(narrow: Narrow, runs: Fall, ladder: Ladder) -> None:
    """Follow all runs until they have settled, learned all there is, or the time is over."""
    first = runs.learned.copy()
    stiff = _explicit(narrow, runs, ladder)
    for run in np.unique(stiff).tolist():
        runs.learned[run], runs.recruited[:, run] = first[run], runs.before[:, run]
        runs.times[run, first[run] :], runs.heads[run, first[run] :], runs.ties[run, first[run] :] = np.nan, -1, False
        there = slice(np.count_nonzero(runs.sizes[:, run]))  # places without a head are the last, and change the steps
        parts = {name: getattr(runs, name)[there] for name in ("sizes", "names", "recruited", "before")}
        own = replace(runs, weights=runs.weights[:, there], **parts)  # views, which are written
        one = narrow.take(np.array([run]))
        _implicit(Narrow(one.plateau, one.members[there]), own, run, ladder)


def _explicit(narrow: Narrow, runs: Fall, ladder: Ladder) -> Int[np.ndarray, " run"]:
    """Follow all runs, but those at their beginning that would take too many steps; which these are."""
    shape, at, first = runs.weights.shape[:2], np.arange(runs.now.size), runs.learned.copy()
    states, midpoints = np.concatenate([runs.weights.reshape(-1, at.size), runs.now[None]]), ladder.midpoints()
    size = np.concatenate([np.broadcast_to(runs.sizes, runs.weights.shape).reshape(-1, at.size), 0 * states[-1:]])
    memory = np.empty(SLOPES * states.size)
    field, slopes = narrow.field_by_length(shape), memory.reshape(SLOPES, *states.shape)
    field(states, slopes[0])
    residual, step = narrow.residual(runs.weights), np.full(at.size, 0.1 / ladder.rates[0])
    excess, most = narrow.excess(residual), np.full(at.size, np.inf)
    for _ in range(_EXPLICIT):
        tried = attempt(field, states, slopes, step, size, runs.tolerance[at])
        accepted, reached = tried.accepted, narrow.residual(tried.states[:-1].reshape(*shape, -1))
        below, length = narrow.excess(reached), tried.states[-1] - states[-1]
        if runs.trace is not None:
            runs.trace.step(field, states, tried, slopes, step)
        while (falling := accepted & (below < midpoints[runs.learned[at]])).any():
            these = at_least_two(np.flatnonzero(falling))
            own, level, drops = narrow.take(these), midpoints[runs.learned[at[these]]], at[these]
            move = own.field_by_length(shape)
            path = DenseOutput(move, states[:, these], tried.states[:, these], slopes[:, :, these], step[these])
            halfway = _at_level(own, path, level, excess[these], below[these], shape)
            speeds = np.empty_like(halfway)
            move(halfway, speeds)
            runs.drop(drops, halfway[-1], speeds[:-1].reshape(*shape, -1), own.members)
        tried_step, step = step, next_step(step, tried.error)
        # What has settled keeps steps short, for stability: one that is too long is not tried again soon.
        most = np.where(accepted, _LONGER * most, _SHORTER * length)
        step = np.minimum(step, most * (tried_step / length))
        states, slopes[0] = np.where(accepted, tried.states, states), np.where(accepted, slopes[-1], slopes[0])
        change = Change(residual, reached, length)
        residual, excess = np.where(accepted, reached, residual), np.where(accepted, below, excess)
        power = 2 * states[: shape[1]] * (slopes[0, : shape[1]] / slopes[0, -1]) * accepted
        joined = _grown(narrow, runs, at, power, excess, ladder)
        if joined is not None:
            narrow = Narrow(narrow.plateau, joined)
            field = narrow.field_by_length(shape)
            field(states, slopes[0])
        over, settled = _ended(narrow, runs, at, first, change, length, states[:-1], ladder)
        if runs.trace is not None:
            done = runs.learned[at]
            over &= np.abs(excess - ladder.levels()[done]) < _OVER * ladder.gains[np.maximum(done, 1) - 1]
        over, settled = over | (states[-1] > runs.until[at]), settled & accepted
        if (over | settled).any():
            done = np.flatnonzero(over | settled)
            runs.now[at[done]], runs.settled[at[done]] = states[-1, done], settled[done] & ~over[done]
            ends, rest = states[:-1, done].reshape(*shape, -1), change.take(done)
            runs.weights[..., at[done]] = _at_rest(narrow.take(done), runs, at[done], ends, rest, ladder)
            keep = at_least_two(np.flatnonzero(~(over | settled)))
            slope, narrow = slopes[0][:, keep], narrow.take(keep)
            at, residual, states, size = at[keep], residual[..., keep], states[:, keep], size[:, keep]
            step, most, excess = step[keep], most[keep], excess[keep]
            if keep.size == 0:
                break
            field, slopes = narrow.field_by_length(shape), memory[: SLOPES * states.size].reshape(SLOPES, *states.shape)
            slopes[0] = slope
    return at


@dataclass
class Change:
    """G before and now, and how much time is between."""

    before: Maps
    now: Maps
    length: PerRun

    def take(self, runs: np.ndarray) -> "Change":
        return Change(self.before[..., runs], self.now[..., runs], self.length[runs])

    def speeds(self) -> PerRun:
        return np.max(np.abs(self.now - self.before), axis=(0, 1)) / self.length

    def left(self, end: Maps, slowest: PerRun) -> tuple[Maps, Bool[np.ndarray, "component component run"]]:
        """The integral over all later times of what G differs by from its end, and which entries decay at all.

        Each decays exponentially, at the rate that its last change tells; at the `slowest` if that is less.
        """
        off = self.now - end
        rates = np.log(np.maximum((self.before - end) / np.where(off == 0, 1.0, off), 1.0)) / self.length
        return off / np.maximum(rates, slowest), rates > slowest


def _ends(narrow: Narrow, runs: Fall, at: np.ndarray) -> tuple[Maps, Bool[np.ndarray, "component component run"]]:
    """G on the next plateau, and which of its entries are of components that are not learned."""
    free = np.arange(narrow.dim)[:, None] + runs.first >= runs.learned[at]
    return np.where(free, narrow.plateau.driving, 0.0) * np.eye(narrow.dim)[..., None], free[:, None] & free[None]


def _largest(runs: Fall, at: np.ndarray, weights: Weights) -> PerRun:
    """The largest weight of the heads that are not recruited."""
    return np.max(np.abs(weights) * (~runs.recruited[:, at] & (runs.sizes[:, at] > 0)), axis=(0, 1))


def _at_rest(narrow: Narrow, runs: Fall, at: np.ndarray, weights: Weights, change: Change, ladder: Ladder) -> Weights:
    """The weights with what G still does to heads that are not recruited until it has settled, to first order."""
    end, block = _ends(narrow, runs, at)
    left, decays = change.left(end, _DECAYING * ladder.rates[np.minimum(runs.learned[at], ladder.rates.size - 1)])
    small = np.max(np.abs(left) * ~block, axis=(0, 1)) * _largest(runs, at, weights) < 1.1 * runs.near[at]
    nudges = runs.nudged[at] & runs.settled[at] & small
    return weights + np.where(nudges & ~runs.recruited[:, at], narrow.nudge(weights, np.where(decays, left, 0.0)), 0.0)


def _at_level(
    narrow: Narrow, path: DenseOutput, level: PerRun, first: PerRun, last: PerRun, shape: tuple[int, int]
) -> np.ndarray:
    """The states within a step at which the excess is at the level."""

    def height(part: PerRun) -> PerRun:
        return level - narrow.excess(narrow.residual(path(part)[:-1].reshape(*shape, -1)))

    return path(crossing(height, np.minimum(level - first, 0.0), level - last))


def _grown(
    narrow: Narrow, runs: Fall, at: np.ndarray, power: PerHead, excess: PerRun, ladder: Ladder
) -> PerHead | None:
    """The members, if heads have become so."""
    parts = _parts(runs, at, power, excess, ladder)
    waiting = ~runs.recruited[:, at] & (runs.sizes[:, at] > 0)
    recruits = waiting & (parts >= _RECRUITED)
    if recruits.any():
        runs.recruit(at, recruits)
    noticed = waiting & (parts >= runs.noticed[at]) & (narrow.members == 0)
    return np.where(noticed, 1.0, narrow.members) if noticed.any() else None


def _parts(runs: Fall, at: np.ndarray, power: PerHead, excess: PerRun, ladder: Ladder) -> PerHead:
    r"""What heads that are still small gain, `power` $= 2v\dot v$, of what there is to be learned next, and still."""
    learned = runs.learned[at]
    return power / (np.append(ladder.gains, np.inf)[learned] + np.maximum(excess - ladder.levels()[learned], 0.0))


def _ended(
    narrow: Narrow,
    runs: Fall,
    at: np.ndarray,
    first: np.ndarray,
    change: Change,
    length: PerRun,
    states: np.ndarray,
    ladder: Ladder,
    slack: float = 1.0,
) -> tuple[Bool[np.ndarray, " run"], Bool[np.ndarray, " run"]]:
    """Which runs have nothing left to learn, or no head for it; and which networks have settled.

    In a network that has settled each head has as many components as pairs, and G is that of the next plateau, or what
    it still does to others is little. An event is found to within `slack`, and rounding changes G in this `length`.
    """
    settled = np.zeros(at.size, bool)
    if not np.any(runs.learned[at] > first[at]):
        return settled, settled
    learned, recruited, rates = runs.learned[at], runs.recruited[:, at], np.append(ladder.rates, ladder.rates[-1])
    waiting = ~recruited & (runs.sizes[:, at] > 0)
    full = (learned >= runs.spent[at] + ladder.rank * recruited.sum(axis=0)) & (learned > first[at])
    least = np.min(np.where(runs.sizes[:, at] > 0, runs.sizes[:, at], np.inf), axis=0)
    speeds = change.speeds()
    resting = (learned > first[at]) & (speeds < slack * _RESTING * rates[learned] ** 2 * least) & (ladder.rank == 1)
    over = (learned == ladder.gains.size) | (full | resting) & ~waiting.any(axis=0)
    these = np.flatnonzero(full & ~over)
    if these.size:
        own, change, rate = narrow.take(these), change.take(these), rates[learned[these]]
        end, block = _ends(own, runs, at[these])
        largest = _largest(runs, at[these], states.reshape(-1, *waiting.shape)[..., these])
        off = np.abs(change.now - end) / rate
        away, bound = np.max(off * ~block, axis=(0, 1)), slack * runs.near[at[these]]
        left = np.max(np.abs(change.left(end, _DECAYING * rate)[0]) * ~block, axis=(0, 1)) * largest
        near = np.where(runs.nudged[at[these]], (left < bound) & (away < _LINEAR), away < bound)
        near &= np.max(off * block, axis=(0, 1)) < _BLOCK
        slowest = np.maximum(_TURNED * rate**2 * largest, _STILL * runs.tolerance[at[these]] * rates[0] / length[these])
        still = speeds[these] < slack * slowest
        turned = np.flatnonzero(still & ~near)
        if turned.size:
            sizes = np.linalg.svd(np.moveaxis(change.now[..., turned], 2, 0), compute_uv=False).T
            ends = np.sort(-np.einsum("ddb->db", end[..., turned]), axis=0)
            near[turned] = np.max(np.abs(sizes + ends), axis=0) < _BLOCK * rate[turned]
        settled[these] = near
    return over, settled


def _implicit(narrow: Narrow, runs: Fall, run: int, ladder: Ladder) -> None:
    """Follow one run anew, to one event after another: a drop, a head that becomes a member or is recruited, rest."""
    at, shape, midpoints = np.array([run]), runs.weights.shape[:2], ladder.midpoints()
    first, state, sizes = runs.learned.copy(), runs.weights[..., run].ravel(), runs.sizes[:, run]
    length = np.array([10 / ladder.rates[0]])
    patience = _PATIENCE / ladder.rates[-1] / sizes[sizes > 0].min()

    def velocity(state: np.ndarray) -> np.ndarray:
        # G first: where it is nearly zero, so is what rounding makes of it.
        return narrow.nudge(state.reshape(*shape, 1), residual(state)).ravel()

    def residual(state: np.ndarray) -> Maps:
        return narrow.residual(state.reshape(*shape, 1))

    def change(state: np.ndarray) -> Change:
        return Change(residual(state - _CHANGE * velocity(state)), residual(state), np.array([_CHANGE]))

    def power(state: np.ndarray) -> PerHead:
        return (2 * state * velocity(state))[: shape[1], None]

    def rest(state: np.ndarray, slack: float = 1.0) -> tuple[bool, bool]:
        over, settled = _ended(narrow, runs, at, first, change(state), length, state[:, None], ladder, slack)
        return bool(over[0]), bool(settled[0])

    def event(state: np.ndarray) -> float:
        """At least 0 where something happens."""
        excess = narrow.excess(residual(state))
        parts = _parts(runs, at, power(state), excess, ladder)[:, 0]
        waiting = ~runs.recruited[:, run] & (sizes > 0)
        bounds = np.where(narrow.members[:, 0] > 0, _RECRUITED, runs.noticed[run])
        grown = np.max(np.where(waiting, parts / bounds - 1, -1.0))
        return max(float(midpoints[runs.learned[run]] - excess[0]), float(grown), 1.0 if any(rest(state)) else -1.0)

    for _ in range(2 * (shape[1] + midpoints.size)):
        excess = narrow.excess(residual(state)) * (1 - _ROUNDING)
        joined = _grown(narrow, runs, at, power(state) * (1 + _ROUNDING), excess, ladder)
        if joined is not None:
            narrow = Narrow(narrow.plateau, joined)
        if excess[0] <= midpoints[runs.learned[run]]:
            runs.drop(at, runs.now[at], velocity(state).reshape(*shape, 1), narrow.members)
            continue
        over, settled = rest(state, 1.01)
        if over or settled or runs.now[run] > runs.until[run]:
            runs.settled[run] = settled and not over
            runs.weights[..., at] = _at_rest(narrow, runs, at, state.reshape(*shape, 1), change(state), ladder)
            return
        try:
            path = integrate(
                velocity, state, patience, event=event, scale=float(sizes.max()), most=MOST_STEPS, shown=False,
                jacobian=lambda state, narrow=narrow: narrow.jacobian(state.reshape(*shape, 1)),
            )  # fmt: skip
        except IntegrationFailed as error:
            runs.reasons[run] = str(error)
            return
        runs.now[run], state = runs.now[run] + path.time, path.state
        if runs.trace is not None:
            runs.trace.add(float(runs.now[run]), np.full((*shape, 2), np.nan))
        if not path.crossed:
            break
    runs.reasons[run] = "after the last of these drops no head escapes"
