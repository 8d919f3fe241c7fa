"""The races of the heads of many runs side by side: on each plateau, who is the first to learn the next component."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from stepwell._util.progress import Meter
from stepwell._util.threads import one_blas_thread

from .._integrate import MOST_STEPS
from .._runge_kutta import SLOPES
from ._heads import Directions, Heads, PerHead, Weights
from ._principal import Principal
from ._wait import wait

_PATIENCE = 1e4
"""A plateau is given up after this many hyperbolic times 1/(ρ w): only a start on the stable manifold waits so long."""
_MOST_DRIFT = 1e-6
"""By which relative error in what the flow conserves its times are still believed. Some 1e-8 are the rule."""
_TOGETHER = 2**19
"""Numbers that the slopes of runs side by side take up, at most: 4 MiB, so that they stay in the cache."""


@dataclass(frozen=True)
class Races:
    """The times of the drops of each run, in units of τ, and their heads: nan and -1 where there are none, and why."""

    times: Float[np.ndarray, "run component"]
    heads: Int[np.ndarray, "run component"]
    reasons: list[str]


def races(
    basis: Principal,
    rates: Float[np.ndarray, " component"],
    values: Float[np.ndarray, "run head"],
    keys: Float[np.ndarray, "run head pair dim"],
    queries: Float[np.ndarray, "run head pair dim"],
    until: float,
) -> Races:
    """The races from these initial weights. `rates` are the `escape_rates` of the task."""
    runs, heads, rank, dim = keys.shape
    races = Races(np.full((runs, basis.useful), np.nan), np.full((runs, basis.useful), -1), [""] * runs)
    if heads == 0:
        return races
    together = max(1, _TOGETHER // (SLOPES * (heads * (1 + 2 * rank * dim) + 1)))
    with Meter("predicting drops", runs, shown=runs > 1) as meter, one_blas_thread(), np.errstate(all="ignore"):
        for first in range(0, runs, together):
            part = slice(first, first + together)
            block = Races(races.times[part], races.heads[part], races.reasons[part])
            _race(basis, rates, _Runs.of(basis, values[part], keys[part], queries[part]), until, block)
            races.reasons[part] = block.reasons
            meter.update(first + len(block.reasons))
    return races


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

    @classmethod
    def of(cls, basis: Principal, values: np.ndarray, keys: np.ndarray, queries: np.ndarray) -> "_Runs":
        runs, heads, _, dim = keys.shape
        directions = Directions.of(basis, runs)
        pairs = np.stack(directions.coordinates(keys, queries))  # (side, run, head, pair, component)
        rows = np.transpose(pairs, (0, 3, 4, 2, 1)).reshape(-1, heads, runs)
        weights = np.concatenate([values.T[None], rows])
        own, sizes = np.zeros((dim, heads, runs), bool), np.abs(weights).max(axis=0)
        return cls(np.arange(runs), directions, weights, own, sizes, np.zeros(runs), np.full(runs, MOST_STEPS))

    def take(self, runs: np.ndarray) -> "_Runs":
        rest = (part[..., runs] for part in (self.weights, self.own, self.sizes, self.now, self.left))
        return _Runs(self.number[runs], self.directions.take(runs), *rest)


def _race(basis: Principal, rates: Float[np.ndarray, " component"], runs: _Runs, until: float, races: Races) -> None:
    """Fill in the races of these runs."""
    none = np.zeros(runs.own.shape, bool)
    excess = -Heads.of(basis, runs.directions, none, none).gains(runs.weights).min(axis=0)
    large, rank = ~(excess <= basis.gains.sum()), (len(runs.weights) - 1) // (2 * basis.sizes.size)
    for run in np.flatnonzero(large):
        races.reasons[run] = too_large(float(excess[run]), float(basis.gains.sum()))
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
    )
    drift = heads.drift(weights, waits.weights)
    for run in np.flatnonzero(~waits.crossed | (drift > _MOST_DRIFT)).tolist():
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
    return _towards_winners(basis, component, runs, winners)


def _towards_winners(basis: Principal, component: int, runs: _Runs, winners: Int[np.ndarray, " run"]) -> _Runs:
    """The runs with the component along what the winner learned, where its size has others.

    Of components of one size any directions will do, until a head chooses. Where sizes differ little, the head turns to
    the larger one so slowly that the others do not notice: at a rate of the relative difference times its own size,
    where they grow at one of theirs. That is so below a relative difference of the heads' size at first over its own.
    """
    each = np.arange(winners.size)
    tolerance = runs.sizes.max(axis=0) / np.abs(runs.weights[:, winners, each]).max(axis=0)
    size = basis.sizes[: basis.useful]
    stop = np.sum(size[:, None] >= (1 - tolerance) * size[component], axis=0)
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


def too_large(excess: float, gains: float) -> str:
    """Why there is no prediction for initial weights that raise the loss by more than can be learned."""
    return (
        f"the theory assumes small initialization, and these weights are too large: they raise the loss by "
        f"{excess:.3g}, and all components together lower it by {gains:.3g}; try a scale below 0.1"
    )
