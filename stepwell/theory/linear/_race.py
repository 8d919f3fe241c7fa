"""The drops of many runs side by side: plateaus on which heads race alone, and falls of the narrow network."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from stepwell._util.progress import Meter
from stepwell._util.threads import one_blas_thread

from .._runge_kutta import SLOPES
from .._types import PerComponent
from ._fall import NOTICED, Fall, Ladder, fall
from ._heads import Directions, Heads, PerHead, Plateau, Weights, sides
from ._narrow import Narrow
from ._principal import Principal
from ._wait import TOLERANCE, wait

_PATIENCE = 1e4
"""A plateau is given up after this many hyperbolic times 1/(ρ w): only weights on the stable manifold wait so long."""
_MOST_DRIFT = 1e-6
"""By which relative error in what the flow conserves its times are still believed. Some 1e-8 are the rule."""
TRIALS = 2
"""Perturbed copies of a run, whose spread is the uncertainty of its times."""
_MOST_CHANGE = 0.5
"""Relative changes of weights above this are none."""
_NEAR = 0.01
"""A network has settled when G is that of the next plateau, to this times the size of the initial weights. Relatively,
the next time is then off by this times their square."""
_LOOSER = 4.0
"""... and so much more in trials, which so include what it is off by."""
_FASTER = 2.0
"""Heads whose components grow so much faster than the next follow the present drop at once; in trials all do."""
_SOLVED = 1e-7
"""The relative error of times by the solver alone."""
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
    ties: Bool[np.ndarray, "run component"]

    @classmethod
    def none(cls, runs: int, components: int) -> "Races":
        nothing = np.full((runs, components), np.nan)
        return cls(nothing, np.full(nothing.shape, -1), [""] * runs, nothing.copy(), np.zeros(nothing.shape, bool))

    def part(self, runs: slice) -> "Races":
        return Races(self.times[runs], self.heads[runs], self.reasons[runs], self.uncertainties[runs], self.ties[runs])


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

    What is left out is estimated by so many `trials`: copies of each run whose weights are at first multiplied by
    $e^{\epsilon\xi}$, with $\xi$ normal and $\epsilon = (\|W_j\|/\|W_\infty\|)^2$, by which heads interact on a
    plateau, and in whose falls all heads count. The uncertainty of a time is three times the root mean square of its
    changes; infinite if the drop is missing in a trial.
    """
    made = _followed(basis, rates, (values, keys, queries), until, None)
    there = np.flatnonzero(np.isfinite(made.times).any(axis=1))
    if trials and there.size:
        copies = tuple(np.repeat(part[there], trials, axis=0) for part in (values, keys, queries))
        shape = (1 + 2 * keys.shape[2] * keys.shape[3], keys.shape[1], trials)
        kicks = np.random.default_rng(0).normal(size=shape)  # the same for every run, whatever others are beside it
        found = _followed(basis, rates, copies, np.inf, kicks).times
        off = found.reshape(there.size, trials, -1) - made.times[there, None]
        spread = 3 * np.sqrt(np.mean(off**2, axis=1))
        made.uncertainties[there] = np.where(np.isnan(spread), np.inf, spread + _SOLVED * made.times[there])
        made.uncertainties[np.isnan(made.times)] = np.nan
    return made if trials else replace(made, uncertainties=np.full(made.times.shape, np.nan))


def _followed(
    basis: Principal,
    rates: Float[np.ndarray, " component"],
    weights: tuple[np.ndarray, ...],
    until: float,
    kicks: Float[np.ndarray, "weights head trial"] | None,
) -> Races:
    """The races of all runs, so many at once that they stay in the cache; of trials, if there are `kicks`."""
    values, keys, _ = weights
    runs, heads, rank, dim = keys.shape
    races = Races.none(runs, basis.useful)
    if heads == 0:
        return races
    together = max(1, _TOGETHER // (SLOPES * (heads * (1 + 2 * rank * dim) + 1)))
    with Meter("predicting drops", runs, shown=runs > 1) as meter, one_blas_thread(), np.errstate(all="ignore"):
        for first in range(0, runs, together):
            part = slice(first, first + together)
            block = races.part(part)
            begun = _Runs.of(basis, *(each[part] for each in weights))
            if kicks is not None:
                begun.kick(basis, kicks[..., np.arange(first, first + begun.now.size) % kicks.shape[-1]])
            _race(basis, rates, begun, until, block)
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
    sizes: PerHead
    """The largest weight of each head at first."""
    now: Float[np.ndarray, " run"]
    learned: Int[np.ndarray, " run"]
    """How many components."""
    recruited: Bool[np.ndarray, "head run"]
    whole: bool = False
    """Whether in falls all heads count: not for predictions, but for trials."""

    @classmethod
    def of(cls, basis: Principal, values: np.ndarray, keys: np.ndarray, queries: np.ndarray) -> "_Runs":
        runs, heads, _, _ = keys.shape
        directions = Directions.of(basis, runs)
        pairs = np.stack(directions.coordinates(keys, queries))  # (side, run, head, pair, component)
        rows = np.transpose(pairs, (0, 3, 4, 2, 1)).reshape(-1, heads, runs)
        weights = np.concatenate([values.T[None], rows])
        sizes, learned = np.abs(weights).max(axis=0), np.zeros(runs, int)
        return cls(np.arange(runs), directions, weights, sizes, np.zeros(runs), learned, np.zeros((heads, runs), bool))

    def take(self, runs: np.ndarray) -> "_Runs":
        rest = (part[..., runs] for part in (self.weights, self.sizes, self.now, self.learned, self.recruited))
        return _Runs(self.number[runs], self.directions.take(runs), *rest, whole=self.whole)

    def kick(self, basis: Principal, kicks: np.ndarray) -> None:
        """Perturb trials; each weight is multiplied, and keeps its sign."""
        lengths = np.linalg.norm(basis.keys, axis=0) * np.linalg.norm(basis.queries, axis=0)
        end = float(np.max(np.cbrt(basis.sizes / basis.curvatures / lengths)[: basis.useful]))
        self.weights *= np.exp(np.minimum((self.sizes / end) ** 2, _MOST_CHANGE) * kicks)
        self.whole = True


def _race(basis: Principal, rates: PerComponent, runs: _Runs, until: float, races: Races) -> None:
    """Fill in the races of these runs."""
    heads = runs.recruited.shape[0]
    excess = -Heads(Plateau.of(basis, runs.directions, _first(basis, 0 * runs.learned)), heads).gains(runs.weights)
    excess, gains = excess.max(axis=0), float(basis.gains.sum())
    large = ~(excess <= gains)
    for run in np.flatnonzero(large).tolist():
        races.reasons[run] = too_large("a head by itself raises", float(excess[run]), gains)
    runs = runs.take(np.flatnonzero(~large)) if large.any() else runs
    while True:
        racing = ~runs.recruited & (runs.sizes > 0)  # a head of zeros never moves
        keep = np.flatnonzero(racing.any(axis=0) & (runs.learned < basis.useful))
        if keep.size == 0:
            return
        if keep.size < runs.now.size:
            runs, racing = runs.take(keep), racing[:, keep]
        runs, noticed = _plateau(basis, rates, runs, racing, until, races)
        runs = _fall(basis, rates, runs, noticed, until, races)


def _first(basis: Principal, counts: Int[np.ndarray, " run"]) -> Bool[np.ndarray, "component run"]:
    """Which are the first so many components."""
    return np.arange(basis.sizes.size)[:, None] < counts


def _plateau(
    basis: Principal, rates: PerComponent, runs: _Runs, racing: Bool[np.ndarray, "head run"], until: float, races: Races
) -> tuple[_Runs, Float[np.ndarray, "head ready"]]:
    """The runs in which a head is noticed by others, and 1 for that head."""
    # Only the heads that race are followed; a run with fewer of them than another has heads of zeros in their place.
    place = np.argsort(~racing, axis=0, kind="stable")[: racing.sum(axis=0).max()][None]
    racing, weights = (np.take_along_axis(part, place, axis=1) for part in (racing[None], runs.weights))
    heads = Heads(Plateau.of(basis, runs.directions, _first(basis, runs.learned)), len(place[0]))
    weights *= racing
    sizes = np.where(racing[0], np.take_along_axis(runs.sizes, place[0], axis=0), 1.0)
    rate = rates[runs.learned]
    patience = _PATIENCE / rate / np.abs(weights).max(axis=(0, 1))
    waits = wait(
        heads,
        weights,
        rate=rate,
        enough=NOTICED * basis.gains[runs.learned],
        sizes=sizes,
        until=np.minimum(patience, until - runs.now),
        tolerance=TOLERANCE,
    )
    drift = heads.drift(weights, waits.weights)
    for run in np.flatnonzero(~waits.crossed | (drift > _MOST_DRIFT)).tolist():
        number = runs.number[run]
        if waits.crossed[run]:
            waits.crossed[run] = False
            races.reasons[number] = "rounding decides when: the slowest rate is too far below the fastest for float64"
        elif patience[run] < until - runs.now[run]:
            races.reasons[number] = f"from these weights no head escapes within t/tau = {patience[run]:.3g}"
    after = np.where(racing, waits.weights, np.take_along_axis(runs.weights, place, axis=1))
    np.put_along_axis(runs.weights, place, after, axis=1)
    runs.now = runs.now + waits.time
    winners = np.take_along_axis(place[0], np.argmax(heads.gains(waits.weights), axis=0)[None], axis=0)[0]
    members = np.zeros(runs.recruited.shape)
    members[winners, np.arange(winners.size)] = 1.0
    keep = np.flatnonzero(waits.crossed)
    return runs.take(keep), members[:, keep]


def too_large(what: str, excess: float, gains: float) -> str:
    """Why there is no prediction for initial weights that raise the loss by more than can be learned."""
    return (
        f"the theory assumes small initialization, and these weights are too large: {what} the loss by "
        f"{excess:.3g}, and all components together lower it by {gains:.3g}; try a scale below 0.1"
    )


def _fall(basis: Principal, rates: PerComponent, runs: _Runs, noticed: PerHead, until: float, races: Races) -> _Runs:
    """The runs that settle on a further plateau."""
    if runs.now.size == 0:
        return runs
    rank = (len(runs.weights) - 1) // (2 * basis.sizes.size)
    slaved, left = _slaved(rates, runs, races, rank)
    members = (1.0 if runs.whole else np.maximum(noticed, runs.recruited)) * ~left
    narrow = Narrow(Plateau.of(basis, runs.directions, _first(basis, slaved)), members)
    falling = Fall(
        runs.weights * ~left, runs.sizes, runs.now.copy(), runs.learned.copy(), runs.recruited.copy(), runs.recruited,
        races.times[runs.number], races.heads[runs.number], races.ties[runs.number], np.zeros(runs.now.size, bool), {},
    )  # fmt: skip
    near = _NEAR * (_LOOSER if runs.whole else 1.0)
    fall(narrow, falling, Ladder(basis.gains[: basis.useful], rates[: basis.useful], rank, near), until)
    late = falling.times > until
    falling.times[late], falling.heads[late] = np.nan, -1
    races.times[runs.number], races.heads[runs.number] = falling.times, falling.heads
    races.ties[runs.number] = falling.ties
    for run, reason in falling.reasons.items():
        races.reasons[runs.number[run]] = reason
    possible = min(basis.useful, rank * len(runs.recruited))
    spent = ~falling.settled & falling.recruited.all(axis=0) & (falling.learned < possible) & (falling.now <= until)
    for run in runs.number[spent].tolist():
        races.reasons[run] = races.reasons[run] or "heads made a drop together, in a near tie, and none is left"
    keep, weights = np.flatnonzero(falling.settled), falling.weights + runs.weights * left
    after = replace(runs, weights=weights, now=falling.now, learned=falling.learned, recruited=falling.recruited)
    return _towards_learned(basis, after.take(keep), runs.learned[keep])


def _slaved(
    rates: PerComponent, runs: _Runs, races: Races, rank: int
) -> tuple[Int[np.ndarray, " run"], Bool[np.ndarray, "head run"]]:
    """How many components follow at once in each run, and whose heads do: those that have no other, nor spare pairs."""
    factor = 1.0 if runs.whole else _FASTER
    faster = rates[:, None] > factor * rates[np.minimum(runs.learned, rates.size - 1)]
    count = np.sum(faster & (np.arange(rates.size)[:, None] < runs.learned), axis=0)[:, None]
    of = races.heads[runs.number] == np.arange(len(runs.recruited))[:, None, None]
    before = np.arange(of.shape[2]) < count
    own, others = np.sum(of & before, axis=2), np.sum(of & ~before, axis=2)
    alone = np.all((own == 0) | ((own == rank) & (others == 0)), axis=0)
    return np.where(alone, count[:, 0], 0), (own > 0) & alone


def _towards_learned(basis: Principal, runs: _Runs, first: Int[np.ndarray, " run"]) -> _Runs:
    """The runs with components of one size along what is learned.

    Of components of one size any directions will do, until a head chooses. Where sizes differ little, the head turns to
    the larger one so slowly that the others do not notice: at a rate of the relative difference times its own size,
    where they grow at one of theirs. That is so below a relative difference of the heads' size at first over its own.
    """
    for component in range(basis.useful):
        tolerance = runs.sizes.max(axis=0) / np.abs(runs.weights * runs.recruited).max(axis=(0, 1))
        stop = np.sum(basis.sizes[: basis.useful, None] >= (1 - tolerance) * basis.sizes[component], axis=0)
        stop = np.where((first <= component) & (component < runs.learned), stop, 0)
        for end in np.unique(stop[stop - component >= 2]):
            these, group = np.flatnonzero(stop == end), slice(component, int(end))
            part = runs.take(these)
            pairs = np.moveaxis(sides(part.weights, basis.sizes.size), (0, 1, 2, 3, 4), (0, 3, 4, 2, 1))  # runs second
            norms = part.directions.norms()[:, :, None, None]
            pairs = pairs * norms
            x, y = pairs[..., group]
            values = (part.weights[0] * part.recruited).T
            learned = np.einsum("bh,bhrd,bhre->bde", values, x, y)
            rotation = np.linalg.eigh(learned + np.swapaxes(learned, 1, 2))[1][:, :, ::-1]
            directions = part.directions.rotated_within(group, rotation)
            pairs[..., group] = pairs[..., group] @ rotation[:, None]
            pairs /= directions.norms()[:, :, None, None]
            rows = np.moveaxis(pairs, (0, 3, 4, 2, 1), (0, 1, 2, 3, 4)).reshape(-1, *part.sizes.shape)
            runs.weights[1:, :, these] = rows
            runs.directions.keys[these], runs.directions.queries[these] = directions.keys, directions.queries
    return runs
