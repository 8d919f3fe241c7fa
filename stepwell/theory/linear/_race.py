"""The races of the heads of many runs side by side: on each plateau, who is the first to learn the next component."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from stepwell._util.progress import Meter
from stepwell._util.threads import one_blas_thread

from .._integrate import MOST_STEPS
from .._runge_kutta import SLOPES
from .._types import PerComponent
from ._heads import Directions, Heads, PerHead, Weights
from ._principal import Principal
from ._wait import TOLERANCE, wait

_PATIENCE = 1e4
"""A plateau is given up after this many hyperbolic times 1/(ρ w): only weights on the stable manifold wait so long."""
_MOST_DRIFT = 1e-6
"""By which relative error in what the flow conserves its times are still believed. Some 1e-8 are the rule."""
TRIALS = 8
"""Perturbed copies of a run, whose spread is the uncertainty of its times."""
_TRIAL_TOLERANCE = 1e-6
"""The error of a step of these copies: spreads are known to a part of themselves."""
_MOST_CHANGE = 0.5
"""Relative changes of weights above this are none: two heads make one drop."""
_TOGETHER = 2**19
"""Numbers that the slopes of runs side by side take up, at most: 4 MiB, so that they stay in the cache."""


@dataclass(frozen=True)
class Races:
    """The times of the drops of each run, in units of τ, and their heads: nan and -1 where there are none, and why.

    `uncertainties` are those of the times; nan where they were not asked for.
    """

    times: Float[np.ndarray, "run component"]
    heads: Int[np.ndarray, "run component"]
    reasons: list[str]
    uncertainties: Float[np.ndarray, "run component"]


def races(
    basis: Principal,
    rates: Float[np.ndarray, " component"],
    values: Float[np.ndarray, "run head"],
    keys: Float[np.ndarray, "run head pair dim"],
    queries: Float[np.ndarray, "run head pair dim"],
    until: float,
    trials: int = 0,
) -> Races:
    r"""The races from these initial weights. `rates` are the `escape_rates` of the task.

    What the races leave out is estimated by so many `trials`: copies of each run that are perturbed as much as what is
    left out perturbs it. Head w takes a time of the order of $1/(\rho\|W_w\|)$ to make its drop. In that time another
    head j feels neither the old plateau nor the new one, and its weights change relatively by its rate times that time,
    $\|W_j\|/\|W_w\|$. So at each drop the logarithms of the other heads' weights are changed by a normal number times
    this; if it is above a half, nothing is known of later drops. Where growth prefers another component than the loss
    does, head w first learns that one, and the time is that in which it turns; where it has learned the right one but
    for parts of others, these count for the time in which they decay (`_turning`). Before the first drop
    heads interact at second order: their logarithms are changed by $(\|W_j\|/\|W_\infty\|)^2$. The uncertainty of a
    time is twice the root mean square of its changes, infinite if the drop is missing in a trial; and for the heads
    that take part in the drop itself $\max_j(\|W_j\|/\|W_w\|)^2/(\rho\|W_w\|)$.
    """
    made = _followed(basis, rates, (values, keys, queries), until, None, TOLERANCE)
    there = np.flatnonzero(np.isfinite(made.times).any(axis=1))
    if trials and there.size:
        copies = tuple(np.repeat(part[there], trials, axis=0) for part in (values, keys, queries))
        shape = (basis.useful + 1, 1 + 2 * keys.shape[2] * keys.shape[3], keys.shape[1], trials)
        kicks = np.random.default_rng(0).normal(size=shape)  # the same for every run, whatever others are beside it
        found = _followed(basis, rates, copies, np.inf, kicks, _TRIAL_TOLERANCE).times
        off = found.reshape(there.size, trials, -1) - made.times[there, None]
        spread = 2 * np.sqrt(np.mean(off**2, axis=1))
        made.uncertainties[there] += np.where(np.isnan(spread), np.inf, spread)
        made.uncertainties[np.isnan(made.times)] = np.nan
    return made if trials else replace(made, uncertainties=np.full(made.times.shape, np.nan))


def _followed(
    basis: Principal,
    rates: Float[np.ndarray, " component"],
    weights: tuple[np.ndarray, ...],
    until: float,
    kicks: Float[np.ndarray, "drop weights head trial"] | None,
    tolerance: float,
) -> Races:
    """The races of all runs, so many at once that they stay in the cache."""
    values, keys, _ = weights
    runs, heads, rank, dim = keys.shape
    nothing = np.full((runs, basis.useful), np.nan)
    races = Races(nothing, np.full(nothing.shape, -1), [""] * runs, nothing.copy())
    if heads == 0:
        return races
    together = max(1, _TOGETHER // (SLOPES * (heads * (1 + 2 * rank * dim) + 1)))
    with Meter("predicting drops", runs, shown=runs > 1) as meter, one_blas_thread(), np.errstate(all="ignore"):
        for first in range(0, runs, together):
            part = slice(first, first + together)
            block = Races(races.times[part], races.heads[part], races.reasons[part], races.uncertainties[part])
            begun = _Runs.of(basis, *(each[part] for each in weights))
            begun.tolerance = tolerance
            if kicks is not None:
                begun.kicks = kicks[..., np.arange(first, first + begun.now.size) % kicks.shape[-1]]
                end = float(np.max(np.cbrt(basis.sizes / basis.curvatures / _lengths(basis))[: basis.useful]))
                begun.kick(0, (begun.sizes / end) ** 2)
            _race(basis, rates, begun, until, block)
            races.reasons[part] = block.reasons
            meter.update(first + len(block.reasons))
    return races


def _lengths(basis: Principal) -> np.ndarray:
    """$n_d$ of each component."""
    return np.linalg.norm(basis.keys, axis=0) * np.linalg.norm(basis.queries, axis=0)


@dataclass
class _Runs:
    """Runs that are followed together."""

    number: Int[np.ndarray, " run"]
    """Among those of the block; runs that have come to an end are left out of all arrays."""
    directions: Directions
    weights: Weights
    own: Bool[np.ndarray, "component head run"]
    """The components that each head has learned."""
    sizes: PerHead
    """The largest weight of each head at first."""
    now: Float[np.ndarray, " run"]
    left: Int[np.ndarray, " run"]
    """Steps that the implicit method may still take."""
    lost: Bool[np.ndarray, " run"]
    """Whether another head has taken so much part in a drop that nothing is known of later ones."""
    kicks: Float[np.ndarray, "drop weights head run"] | None = None
    """Normal numbers by which trials are perturbed, first of all and at each drop."""
    tolerance: float = TOLERANCE

    @classmethod
    def of(cls, basis: Principal, values: np.ndarray, keys: np.ndarray, queries: np.ndarray) -> "_Runs":
        runs, heads, _, dim = keys.shape
        directions = Directions.of(basis, runs)
        pairs = np.stack(directions.coordinates(keys, queries))  # (side, run, head, pair, component)
        rows = np.transpose(pairs, (0, 3, 4, 2, 1)).reshape(-1, heads, runs)
        weights = np.concatenate([values.T[None], rows])
        own, sizes = np.zeros((dim, heads, runs), bool), np.abs(weights).max(axis=0)
        left = np.full(runs, MOST_STEPS)
        return cls(np.arange(runs), directions, weights, own, sizes, np.zeros(runs), left, np.zeros(runs, bool))

    def take(self, runs: np.ndarray) -> "_Runs":
        rest = (part[..., runs] for part in (self.weights, self.own, self.sizes, self.now, self.left, self.lost))
        kicks = None if self.kicks is None else self.kicks[..., runs]
        return _Runs(self.number[runs], self.directions.take(runs), *rest, kicks=kicks, tolerance=self.tolerance)

    def kick(self, drop: int, sizes: PerHead) -> None:
        """Perturb trials by these relative sizes; each weight is multiplied, and keeps its sign."""
        if self.kicks is not None:
            self.weights *= np.exp(np.minimum(sizes, _MOST_CHANGE) * self.kicks[drop])


def _race(basis: Principal, rates: PerComponent, runs: _Runs, until: float, races: Races) -> None:
    """Fill in the races of these runs."""
    none = np.zeros(runs.own.shape, bool)
    excess = -Heads.of(basis, runs.directions, none, none).gains(runs.weights).min(axis=0)
    large, rank = ~(excess <= basis.gains.sum()), (len(runs.weights) - 1) // (2 * basis.sizes.size)
    for run in np.flatnonzero(large):
        races.reasons[run] = too_large("a head by itself raises", float(excess[run]), float(basis.gains.sum()))
    runs = runs.take(np.flatnonzero(~large)) if large.any() else runs
    for component in range(basis.useful):
        racing = (runs.own.sum(axis=0) < rank) & (runs.sizes > 0)  # a head of zeros never moves
        if not racing.any(axis=0).all():
            keep = np.flatnonzero(racing.any(axis=0))
            runs, racing = runs.take(keep), racing[:, keep]
        if runs.now.size == 0:
            return
        runs = _plateau(basis, component, float(rates[component]), runs, racing, until, races)


def _plateau(
    basis: Principal,
    component: int,
    rate: float,
    runs: _Runs,
    racing: Bool[np.ndarray, "head run"],
    until: float,
    races: Races,
) -> _Runs:
    """The runs that go on after the plateau on which the components before this one are learned."""
    # Only the heads that race are followed; a run with fewer of them than another has heads of zeros in their place.
    place = np.argsort(~racing, axis=0, kind="stable")[: racing.sum(axis=0).max()][None]
    racing, own, weights = (np.take_along_axis(part, place, axis=1) for part in (racing[None], runs.own, runs.weights))
    known = (np.arange(basis.sizes.size) < component)[:, None, None] & ~own
    heads = Heads.of(basis, runs.directions, own, known)
    weights *= racing
    largest = np.abs(weights).max(axis=0)
    weights[1:].reshape(2, -1, *known.shape)[:, :, known] = 0.0  # these do not move any more, nor matter
    sizes = np.where(racing[0], np.take_along_axis(runs.sizes, place[0], axis=0), 1.0)
    fresh = largest * ~own.any(axis=0)  # the slowest
    patience = _PATIENCE / rate / np.where(fresh.any(axis=0), fresh.max(axis=0), largest.max(axis=0))
    waits = wait(
        heads,
        weights,
        rate=rate,
        enough=float(basis.gains[component]) / 2,
        sizes=sizes,
        until=np.minimum(patience, until - runs.now),
        most=runs.left,
        tolerance=runs.tolerance,
    )
    drift = heads.drift(weights, waits.weights)
    for run in np.flatnonzero(~waits.crossed | (drift > _MOST_DRIFT * runs.tolerance / TOLERANCE)).tolist():
        number = runs.number[run]
        if waits.crossed[run]:
            waits.crossed[run] = False
            races.reasons[number] = "rounding decides when: the slowest rate is too far below the fastest for float64"
        elif run in waits.reasons:
            races.reasons[number] = waits.reasons[run]
        elif patience[run] < until - runs.now[run]:
            races.reasons[number] = f"from these weights no head escapes within t/tau = {patience[run]:.3g}"
    np.put_along_axis(runs.weights, place, waits.weights, axis=1)
    runs.now, runs.left = runs.now + waits.time, runs.left - waits.steps
    winners = np.take_along_axis(place[0], np.argmax(heads.gains(waits.weights), axis=0)[None], axis=0)[0]
    runs.own[component, winners, np.arange(winners.size)] = True
    if not waits.crossed.all():
        keep = np.flatnonzero(waits.crossed)
        runs, winners = runs.take(keep), winners[keep]
    races.times[runs.number, component], races.heads[runs.number, component] = runs.now, winners
    each = np.arange(winners.size)
    largest = np.abs(runs.weights).max(axis=0) * ~runs.own.any(axis=0)
    size = np.abs(runs.weights[:, winners, each]).max(axis=0)
    shared = (largest.max(axis=0) / size) ** 2 / (rate * size)
    races.uncertainties[runs.number, component] = np.where(runs.lost, np.inf, shared)
    changes = np.maximum(largest / size, _turning(basis, component, runs, winners, rate * largest))
    runs.kick(component + 1, changes)
    runs.lost |= changes.max(axis=0) > _MOST_CHANGE
    return _towards_winners(basis, component, runs, winners)


def _turning(
    basis: Principal, component: int, runs: _Runs, winners: Int[np.ndarray, " run"], speeds: PerHead
) -> PerHead:
    r"""The part by which the logarithms of other heads' weights change while the winner of each run turns.

    Near $v = x_d = y_d = u$, $u^3 = s_d/(t_dn_d)$, its parts along the component e grow by the matrix
    $((-u^4a_eb_d, un_es_e), (un_es_e, -u^4a_db_e))$ (see `_heads`). If it has learned the component d instead, it turns
    in the time in which they grow from its size at first; if it has learned this one, parts that are $\theta$ of it
    decay, and others are off by $\theta$ that long. Others grow at `speeds`; those of a component that is as good as
    equal (`_towards_winners`) are off by $\theta$ times the decay in their own time.
    """
    lengths, each = _lengths(basis), np.arange(winners.size)
    keys, queries = (np.sum(side**2, axis=0) for side in (basis.keys, basis.queries))
    own = runs.weights[:, winners, each]
    dim = basis.sizes.size
    x, y = own[1:].reshape(2, (len(own) - 1) // (2 * dim), dim, winners.size)
    ends = basis.sizes / (basis.curvatures * lengths)
    shares = own[0] * np.sum(x * y, axis=0) / ends[:, None]
    d = component + np.argmax(shares[component : basis.useful], axis=0)
    u = np.cbrt(ends[d])

    def rates(e: int) -> np.ndarray:
        """Of the part along e."""
        first = -(u**4) * (basis.curvatures * keys)[e] * queries[d]
        second = -(u**4) * (basis.curvatures * keys)[d] * queries[e]
        return (first + second) / 2 + np.hypot((first - second) / 2, u * lengths[e] * basis.sizes[e])

    growth = rates(component)
    times = np.log(np.maximum(u / runs.sizes[winners, each], np.e)) / np.where(growth > 0, growth, np.nan)
    changes = np.where(speeds > 0, speeds * np.nan_to_num(times, nan=np.inf), 0.0)
    parts, equal = np.zeros(speeds.shape), _as_good_as_equal(basis, component, runs, winners)
    sizes = np.sum(x[:, component] ** 2 + y[:, component] ** 2, axis=0)
    for e in range(component + 1, basis.useful):
        decay = np.maximum(-rates(e), 0.0)
        # Of parts of x and y, those of opposite signs decay at once.
        off = np.abs(np.sum(x[:, component] * x[:, e] + y[:, component] * y[:, e], axis=0)) / sizes
        slow = np.divide(decay, speeds, out=np.ones(speeds.shape), where=speeds > 0)
        parts = np.hypot(parts, off * np.minimum(np.where(e < equal, slow, 1 / slow), 1.0))
    return np.where(d == component, np.where(speeds > 0, parts, 0.0), changes)


def _as_good_as_equal(
    basis: Principal, component: int, runs: _Runs, winners: Int[np.ndarray, " run"]
) -> Int[np.ndarray, " run"]:
    """Where the components end that are as large as this one up to the heads' size at first over the winner's own."""
    tolerance = runs.sizes.max(axis=0) / np.abs(runs.weights[:, winners, np.arange(winners.size)]).max(axis=0)
    return np.sum(basis.sizes[: basis.useful, None] >= (1 - tolerance) * basis.sizes[component], axis=0)


def _towards_winners(basis: Principal, component: int, runs: _Runs, winners: Int[np.ndarray, " run"]) -> _Runs:
    """The runs with the component along what the winner learned, where its size has others.

    Of components of one size any directions will do, until a head chooses. Where sizes differ little, the head turns to
    the larger one so slowly that the others do not notice: at a rate of the relative difference times its own size,
    where they grow at one of theirs. That is so below a relative difference of the heads' size at first over its own.
    """
    stop = _as_good_as_equal(basis, component, runs, winners)
    for end in np.unique(stop[stop - component >= 2]):
        these, group = np.flatnonzero(stop == end), slice(component, int(end))
        part = runs.take(these)
        shape = (2, -1, *part.own.shape)
        pairs = np.moveaxis(part.weights[1:].reshape(shape), (0, 1, 2, 3, 4), (0, 3, 4, 2, 1))  # runs second
        norms = part.directions.norms()[:, :, None, None]
        pairs = pairs * norms
        chosen = np.arange(these.size)
        x, y = pairs[:, chosen, winners[these], :, group]
        learned = part.weights[0, winners[these], chosen][:, None, None] * (np.swapaxes(x, 1, 2) @ y)
        rotation = np.linalg.eigh(learned + np.swapaxes(learned, 1, 2))[1][:, :, ::-1]
        directions = part.directions.rotated_within(group, rotation)
        pairs[..., group] = pairs[..., group] @ rotation[:, None]
        pairs /= directions.norms()[:, :, None, None]
        rows = np.moveaxis(pairs, (0, 3, 4, 2, 1), (0, 1, 2, 3, 4)).reshape(-1, *part.sizes.shape)
        runs.weights[1:, :, these] = rows
        runs.directions.keys[these], runs.directions.queries[these] = directions.keys, directions.queries
    return runs


def too_large(what: str, excess: float, gains: float) -> str:
    """Why there is no prediction for initial weights that raise the loss by more than can be learned."""
    return (
        f"the theory assumes small initialization, and these weights are too large: {what} the loss by "
        f"{excess:.3g}, and all components together lower it by {gains:.3g}; try a scale below 0.1"
    )
