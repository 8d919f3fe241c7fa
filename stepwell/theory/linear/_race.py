"""The drops of many runs side by side: plateaus on which heads race alone, and falls of the narrow network."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from stepwell._util.progress import Meter
from stepwell._util.threads import one_blas_thread

from .._runge_kutta import SLOPES
from .._types import PerComponent
from ._fall import Fall, Ladder, fall
from ._heads import Directions, PerHead, Plateau, Weights, drift, gains, sides
from ._narrow import Narrow
from ._principal import Principal
from ._trace import Trace
from ._wait import at_least_two, wait

_PATIENCE = 1e4
"""A plateau is given up after this many hyperbolic times 1/(ρ w): only weights on the stable manifold wait so long."""
_MOST_DRIFT = 1e-6
"""By which relative error in what the flow conserves its times are still believed. Some 1e-8 are the rule."""
_NOTICED = 3e-6
"""A head that gains so large a part of what it could learn becomes a member of the network: others begin to feel it."""
_NEAR, _NEARER = 0.1, 0.01
"""A network has settled when what is left of it would change others relatively by this times the initial size, and they
are so changed; where one is `careful`, when G is that of the next plateau, to this times the same."""
_SMALL = 3e-3
"""One is careful with heads so small, relative to those that have learned, and where directions are not orthogonal."""
_TOLERANCE = 1e-3
"""The error of a step, in units of the squared initial size."""
TRIALS = 1
"""Copies of a run that are followed less closely: what they are off by is the uncertainty of its times."""
_NOTICED_LATER, _LOOSER, _COARSER = 30.0, 4.0, 5.0
"""How much larger a part is noticed in trials, how much less is left when they settle, and how much their steps err."""
_SAFE = 3.0
"""An uncertainty is so much more than what is off in a trial."""
_FASTER, _FAR_FASTER = 4.0, 100.0
"""Small heads whose components grow so much faster than the next follow the present drop at once, and those so far
faster where directions are not orthogonal. Larger ones all do: others move them by a part of the order of their size,
which is more than what that leaves out."""
_LEFT_OUT = 0.07
"""While a head falls, others change relatively by their size over its own; trials are perturbed by a part of that."""
_MOST_CHANGE = 0.5
"""Relative changes of initial weights above this are none."""
_UNTIL = 2.0
"""Trials are followed so much longer."""
_SOLVED = 1e-7
"""The relative error of times by the solver alone."""
_TOGETHER = 2**23
"""Numbers that the slopes of runs side by side take up, at most: 64 MiB."""


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


def races(
    basis: Principal,
    rates: Float[np.ndarray, " component"],
    values: Float[np.ndarray, "run head"],
    keys: Float[np.ndarray, "run head pair dim"],
    queries: Float[np.ndarray, "run head pair dim"],
    until: float,
    trials: int = 0,
    trace: Trace | None = None,
) -> Races:
    r"""The races from these initial weights. `rates` are the `escape_rates` of the task.

    The path of the only run is written in `trace`.

    What is left out is estimated by so many `trials`: copies of each run in which heads are noticed later, networks
    settle less and steps are longer, so that each leaves out at least three times as much, and in which weights are
    multiplied by $e^{\epsilon\xi}$ with $\xi$ normal: at first with $\epsilon = (\|W_j\|/\|W_\infty\|)^2$, by more
    than heads interact on the first plateau, and after each fall with a part of $\|W_j\|/\|W_\infty\|$, by which a fall
    changes them. The uncertainty of a time is three times the root mean square of its changes; infinite if the drop is
    missing in a trial.
    """
    runs, heads, rank, dim = keys.shape
    made = Races.none(runs * (1 + trials), basis.useful)
    if runs and heads:
        begun = _Runs.of(
            basis, *(np.tile(part, (1 + trials,) + (1,) * (part.ndim - 1)) for part in (values, keys, queries))
        )
        begun.trial = begun.number // runs
        begun.until = np.where(begun.trial > 0, _UNTIL * until, until)
        shape = (1 + basis.useful, 1 + 2 * rank * dim, heads, trials)
        own = np.random.default_rng(0).normal(size=shape)  # the same for every run, whatever others are beside it
        begun.kicks = np.concatenate([np.zeros((*shape[:-1], 1)), own], axis=3)
        begun.kick(begun.scales(basis) ** 2)
        with one_blas_thread(), np.errstate(all="ignore"):
            begun.trace = trace
            _race(basis, rates, begun, made)
    own = Races(made.times[:runs], made.heads[:runs], made.reasons[:runs], made.uncertainties[:runs], made.ties[:runs])
    if trials:
        off = made.times[runs:].reshape(trials, *own.times.shape) - own.times
        spread = np.sqrt(np.mean(off**2, axis=0))
        own.uncertainties[:] = np.where(np.isnan(spread), np.inf, _SAFE * spread + _SOLVED * own.times)
        own.uncertainties[np.isnan(own.times)] = np.nan
    return own


@dataclass
class _Runs:
    """Runs that are followed together."""

    number: Int[np.ndarray, " run"]
    """Runs that have come to an end are left out of all arrays."""
    directions: Directions
    weights: Weights
    sizes: PerHead
    """The largest weight of each head at first."""
    now: Float[np.ndarray, " run"]
    until: Float[np.ndarray, " run"]
    learned: Int[np.ndarray, " run"]
    """How many components."""
    recruited: Bool[np.ndarray, "head run"]
    trial: Int[np.ndarray, " run"]
    """Its number; 0 for the run itself."""
    kicks: Float[np.ndarray, "drop weights head trial"]
    """By which trials are perturbed after so many drops."""
    trace: Trace | None = None

    @classmethod
    def of(cls, basis: Principal, values: np.ndarray, keys: np.ndarray, queries: np.ndarray) -> "_Runs":
        runs, heads, _, _ = keys.shape
        directions = Directions.of(basis, runs)
        pairs = np.stack(directions.coordinates(keys, queries))  # (side, run, head, pair, component)
        rows = np.transpose(pairs, (0, 3, 4, 2, 1)).reshape(-1, heads, runs)
        weights = np.concatenate([values.T[None], rows])
        sizes, none = np.abs(weights).max(axis=0), np.zeros((heads, runs), bool)
        return cls(
            np.arange(runs), directions, weights, sizes, np.zeros(runs), np.full(runs, np.inf), np.zeros(runs, int),
            none, np.zeros(runs, int), np.zeros((1, *weights.shape[:2], 1)),
        )  # fmt: skip

    def take(self, runs: np.ndarray) -> "_Runs":
        rest = (self.weights, self.sizes, self.now, self.until, self.learned, self.recruited, self.trial)
        return _Runs(
            self.number[runs],
            self.directions.take(runs),
            *(part[..., runs] for part in rest),
            kicks=self.kicks,
            trace=self.trace,
        )

    def kick(self, changes: PerHead) -> None:
        """Perturb trials by these relative changes; each weight is multiplied, and keeps its sign."""
        kicks = np.moveaxis(self.kicks[self.learned, :, :, self.trial], 0, 2)
        self.weights *= np.exp(np.minimum(changes, _MOST_CHANGE) * kicks)

    def scales(self, basis: Principal) -> PerHead:
        """The sizes of heads at first, relative to those of heads that have learned."""
        return self.sizes / _end(basis)

    def tolerance(self, basis: Principal) -> Float[np.ndarray, " run"]:
        """The error of a step."""
        own = np.clip(_TOLERANCE * self.scales(basis).max(axis=0) ** 2, 1e-9, 1e-6)
        return own * np.where(self.trial > 0, _COARSER, 1.0)

    def noticed(self) -> Float[np.ndarray, " run"]:
        return _NOTICED * np.where(self.trial > 0, _NOTICED_LATER, 1.0)


def _end(basis: Principal) -> float:
    """The size of heads that have learned."""
    lengths = np.linalg.norm(basis.keys, axis=0) * np.linalg.norm(basis.queries, axis=0)
    return float(np.max(np.cbrt(basis.sizes / basis.curvatures / lengths)[: basis.useful]))


class _Followed:
    """Some runs of `runs` with the heads of `own`, those of `before` before the others, from component `first` on.

    A run that has fewer of these heads than another has heads of zeros in their place.
    """

    def __init__(
        self,
        runs: _Runs,
        at: Int[np.ndarray, " column"],
        own: Bool[np.ndarray, "head run"],
        before: Bool[np.ndarray, "head run"],
        first: int,
        dim: int,
    ):
        order = np.argsort(2 * ~own[:, at] - before[:, at].astype(int), axis=0, kind="stable")
        self.at, self.names = at, order[: max(1, own[:, at].sum(axis=0).max())]
        rows = np.arange(1, len(runs.weights)).reshape(-1, dim)[:, first:]
        self._where = np.append(0, rows)[:, None, None], self.names, at
        self._weights, self.own = runs.weights, self.of(own)
        self.weights = np.where(self.own, runs.weights[self._where], 0.0)
        self.sizes = np.where(self.own, self.of(runs.sizes), 0.0)

    def of(self, per_head: Shaped[np.ndarray, "head run"]) -> Shaped[np.ndarray, "place column"]:
        """What belongs to these heads."""
        return per_head[self.names, self.at]

    def trace(self, runs: _Runs, narrow: Narrow) -> Trace | None:
        """Where to write the path."""
        if runs.trace is not None:
            one = self.at[0]
            directions = runs.directions.keys[one], runs.directions.queries[one]
            runs.trace.begin(narrow, runs.weights, self._where, directions)
        return runs.trace

    def write(self, weights: Weights) -> None:
        """Write these weights in those of all heads."""
        self._weights[self._where] = np.where(self.own, weights, self._weights[self._where])


def _race(basis: Principal, rates: PerComponent, runs: _Runs, races: Races) -> None:
    """Fill in the races of these runs."""
    plateau = Plateau.of(basis, runs.directions, _first(basis, 0 * runs.learned))
    excess, most = -gains(plateau, runs.weights).min(axis=0), float(basis.gains.sum())
    large = ~(excess <= most)
    for run in np.flatnonzero(large).tolist():
        races.reasons[run] = too_large("a head by itself raises", float(excess[run]), most)
    runs, total = runs.take(np.flatnonzero(~large)) if large.any() else runs, runs.now.size
    with Meter("predicting drops", total, shown=total > 2) as meter:
        while True:
            racing = ~runs.recruited & (runs.sizes > 0)  # a head of zeros never moves
            keep = np.flatnonzero(racing.any(axis=0) & (runs.learned < basis.useful))
            if keep.size == 0:
                return
            if keep.size < runs.now.size:
                runs, racing = runs.take(keep), racing[:, keep]
            runs, noticed = _plateau(basis, rates, runs, racing, races)
            runs = _fall(basis, rates, runs, noticed, races)
            meter.update(int(total * np.mean(np.isfinite(races.times))))


def _first(basis: Principal, counts: Int[np.ndarray, " run"]) -> Bool[np.ndarray, "component run"]:
    """Which are the first so many components."""
    return np.arange(basis.sizes.size)[:, None] < counts


def _together(
    first: Int[np.ndarray, " run"], own: Bool[np.ndarray, "head run"], basis: Principal, rows: int
) -> Iterator:
    """Runs whose first component is the same, as many at once as stay in the cache, and that component."""
    for component in np.unique(first):
        these = np.flatnonzero(first == component)
        width = 1 + (rows - 1) // basis.sizes.size * (basis.sizes.size - component)
        most = max(2, _TOGETHER // (SLOPES * (own[:, these].sum(axis=0).max() * width + 1)))
        for part in np.array_split(these, -(-these.size // most)):
            yield at_least_two(part), int(component)


def _plateau(
    basis: Principal, rates: PerComponent, runs: _Runs, racing: Bool[np.ndarray, "head run"], races: Races
) -> tuple[_Runs, Bool[np.ndarray, "head ready"]]:
    """The runs in which a head is noticed by others, and which it is."""
    plateau = Plateau.of(basis, runs.directions, _first(basis, runs.learned))
    crossed, noticed = np.zeros(runs.now.size, bool), np.zeros(racing.shape, bool)
    tolerance, enough = runs.tolerance(basis), runs.noticed() * basis.gains[runs.learned]
    # Components that are learned do not move, if directions are orthogonal.
    for at, first in _together(np.where(plateau.oblique(), 0, runs.learned), racing, basis, len(runs.weights)):
        part = _Followed(runs, at, racing, racing, first, basis.sizes.size)
        narrow, rate, left = (
            Narrow(plateau.take(at, first), 0.0 * part.sizes),
            rates[runs.learned[at]],
            runs.until[at] - runs.now[at],
        )
        patience = _PATIENCE / rate / np.abs(part.weights).max(axis=(0, 1))
        waits = wait(
            narrow,
            part.weights,
            rate=rate,
            enough=enough[at],
            sizes=np.where(part.own, part.sizes, 1.0),
            until=np.minimum(patience, left),
            tolerance=tolerance[at],
            trace=part.trace(runs, narrow),
            since=float(runs.now[at[0]]),
        )
        lost = drift(narrow.plateau, part.weights, waits.weights) > _MOST_DRIFT * np.where(
            runs.trial[at], _COARSER, 1.0
        )
        for run in np.flatnonzero(~waits.crossed | lost).tolist():
            number = runs.number[at[run]]
            if waits.crossed[run]:
                waits.crossed[run] = False
                races.reasons[number] = (
                    "rounding decides when: the slowest rate is too far below the fastest for float64"
                )
            elif patience[run] < left[run]:
                races.reasons[number] = f"from these weights no head escapes within t/tau = {patience[run]:.3g}"
        part.write(waits.weights)
        crossed[at], noticed[part.names[waits.head, np.arange(at.size)], at] = waits.crossed, True
        runs.now[at] += waits.time
    keep = np.flatnonzero(crossed)
    return runs.take(keep), noticed[:, keep]


def too_large(what: str, excess: float, gains: float) -> str:
    """Why there is no prediction for initial weights that raise the loss by more than can be learned."""
    return (
        f"the theory assumes small initialization, and these weights are too large: {what} the loss by "
        f"{excess:.3g}, and all components together lower it by {gains:.3g}; try a scale below 0.1"
    )


def _fall(
    basis: Principal, rates: PerComponent, runs: _Runs, noticed: Bool[np.ndarray, "head run"], races: Races
) -> _Runs:
    """The runs that settle on a further plateau."""
    if runs.now.size == 0:
        return runs
    rank, dim, begun = (len(runs.weights) - 1) // (2 * basis.sizes.size), basis.sizes.size, runs.learned.copy()
    oblique = Plateau.of(basis, runs.directions, _first(basis, 0 * begun)).oblique()
    careful = oblique | (runs.scales(basis).max(axis=0) < _SMALL)
    factor = np.where(oblique, _FAR_FASTER, np.where(careful, _FASTER, 0.0))
    slaved, left = _slaved(rates, runs, races, rank, factor)
    plateau = Plateau.of(basis, runs.directions, _first(basis, slaved))
    members, settled = (noticed | runs.recruited) & ~left, np.zeros(begun.size, bool)
    ladder = Ladder(basis.gains[: basis.useful], rates[: basis.useful], rank)
    tolerance, possible = runs.tolerance(basis), min(basis.useful, rank * len(left))
    near = np.where(careful, _NEARER, _NEAR) * np.where(runs.trial > 0, _LOOSER, 1.0)
    near = np.clip(near * runs.scales(basis).max(axis=0), 1e-7, 1e-3)
    for at, first in _together(np.where(oblique, 0, slaved), ~left, basis, len(runs.weights)):
        part, number = _Followed(runs, at, ~left, members, first, dim), runs.number[at]
        recruited = part.of(runs.recruited) & part.own
        falling = Fall(
            part.weights, part.sizes, part.names, first, slaved[at], runs.noticed()[at], ~careful[at], near[at],
            tolerance[at], runs.now[at], runs.until[at], runs.learned[at], recruited.copy(), recruited,
            races.times[number], races.heads[number], races.ties[number], np.zeros(at.size, bool), {},
        )  # fmt: skip
        narrow = Narrow(plateau.take(at, first), 1.0 * (part.of(members) & part.own))
        falling.trace = part.trace(runs, narrow)
        fall(narrow, falling, ladder)
        late = falling.times > falling.until[:, None]
        falling.times[late], falling.heads[late] = np.nan, -1
        races.times[number], races.heads[number], races.ties[number] = falling.times, falling.heads, falling.ties
        for run, reason in falling.reasons.items():
            races.reasons[number[run]] = reason
        part.write(falling.weights)
        runs.now[at], runs.learned[at], settled[at] = falling.now, falling.learned, falling.settled
        runs.recruited[part.names, at] = np.where(part.own, falling.recruited, part.of(runs.recruited))
    spent = ~settled & runs.recruited.all(axis=0) & (runs.learned < possible) & (runs.now <= runs.until)
    for run in runs.number[spent].tolist():
        races.reasons[run] = races.reasons[run] or "heads made a drop together, in a near tie, and none is left"
    keep = np.flatnonzero(settled)
    runs = _towards_learned(basis, runs.take(keep), begun[keep])
    runs.kick(_LEFT_OUT * np.abs(runs.weights).max(axis=0) / _end(basis))
    return runs


def _slaved(
    rates: PerComponent, runs: _Runs, races: Races, rank: int, factor: Float[np.ndarray, " run"]
) -> tuple[Int[np.ndarray, " run"], Bool[np.ndarray, "head run"]]:
    """How many components follow at once in each run, and whose heads do: those that have no other, nor spare pairs."""
    faster = rates[:, None] > factor * rates[np.minimum(runs.learned, rates.size - 1)]
    count = np.sum(np.logical_and.accumulate(faster & (np.arange(rates.size)[:, None] < runs.learned)), axis=0)[:, None]
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
