"""One number, or one word, of each run: what a study plots and filters by."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from stepwell._util import paper_time
from stepwell._util.spectrum import Spectrum, spectrum_of
from stepwell.analysis import head_task_allocation, level_drops
from stepwell.dynamics import Ensemble
from stepwell.experiments import Built as Parts
from stepwell.objectives import Population
from stepwell.store import Column
from stepwell.tasks import InContextInWeightMixture, population_moments
from stepwell.theory import RegressionTask, linear

from ._stacked import Built

_SETTLED = 1e-6  # the loss rests where it changes by less than this part of itself, and rises where it does so by more
_LAST = 32  # steps at the end at which the loss has to rest
_GOOD = ("", "finished", "converged", "stuck")  # outcomes of a solver after which a loss is that of the end


@dataclasses.dataclass(frozen=True)
class Measured:
    built: Built
    losses: Float[np.ndarray, "run point"]  # not a number from the point on at which a run stopped being finite
    points: np.ndarray  # steps, or times
    unit_times: Float[np.ndarray, " run"] | None  # the paper's time for one unit of these, where it is known
    last: dict[str, np.ndarray]  # weights at the end
    outcomes: np.ndarray | None = None  # what a solver said of each run; empty where it said nothing

    @property
    def finite(self) -> np.ndarray:
        return np.asarray(np.isfinite(self.losses).all(axis=1))

    @classmethod
    def joined(cls, built: Built, parts: list["Measured"]) -> "Measured":
        return cls(
            built,
            np.concatenate([part.losses for part in parts]),
            parts[0].points,
            np.concatenate([part.unit_times for part in parts if part.unit_times is not None]),
            {name: np.concatenate([part.last[name] for part in parts]) for name in parts[0].last},
            np.concatenate([part.outcomes for part in parts if part.outcomes is not None]),
        )


Scalars = dict[str, Column]


def basic(measured: Measured) -> Scalars:
    """Outcome and losses, which every run has."""
    losses = measured.losses
    said = np.full(len(losses), "") if measured.outcomes is None else measured.outcomes
    ended = measured.finite & np.isin(said, _GOOD)
    with np.errstate(invalid="ignore"):
        largest = np.where(ended, np.max(losses, axis=1), np.inf)
    words = np.where(said != "", said, np.where(ended, "finished", "diverged"))
    return {
        "outcome": Column.of(words.tolist()),
        "first_loss": Column(losses[:, 0].copy()),
        "final_loss": Column(np.where(ended, losses[:, -1], np.nan)),
        "largest_loss": Column(largest),
    }


def drops(measured: Measured) -> Scalars:
    r"""When the loss is halfway from one level of the theory to the next, in the paper's time $t/\tau$.

    They are those of `analysis.level_drops`, interpolated between measured points; not a number where that level is not
    reached.
    """
    levels, points = _levels(measured.built), measured.points.astype(float)
    assert measured.unit_times is not None
    when = np.full((len(levels), max(levels.shape[1] - 1, 0)), np.nan)
    for row, (own, loss) in enumerate(zip(levels, measured.losses, strict=True)):
        own, finite = own[np.isfinite(own)], np.isfinite(loss)
        end = loss.size if finite.all() else int(np.argmin(finite))
        if own.size > 1 and end > 1:
            when[row, : own.size - 1] = [drop.time for drop in level_drops(points[:end], loss[:end], own)]
    return _numbered("drop", when * measured.unit_times[:, None])


def predicted(measured: Measured) -> Scalars:
    """The same times, predicted from the initial weights, each with its uncertainty, and why some are withheld.

    Not a number where the theory has none; uncertainties are those of flows at infinitely many sequences.
    """
    most = np.maximum(np.isfinite(_levels(measured.built)).sum(axis=1) - 1, 0)
    times, uncertainties = np.full((2, measured.built.size, int(most.max())), np.nan)
    withheld = [""] * measured.built.size
    for row, drops, reason in _predictions(measured.built):
        kept = drops[: most[row]]
        times[row, : len(kept)] = [drop.time for drop in kept]
        uncertainties[row, : len(kept)] = [np.nan if drop.uncertainty is None else drop.uncertainty for drop in kept]
        withheld[row] = "" if len(kept) == most[row] > 0 else reason or "no head is left"
    made = _numbered("predicted", times) | _numbered("uncertainty", uncertainties)
    return made | {"withheld": Column.of(withheld)}


def _numbered(name: str, values: Float[np.ndarray, "run number"]) -> Scalars:
    return {f"{name}_{number + 1}": Column(values[:, number].copy()) for number in range(values.shape[1])}


def _predictions(built: Built) -> Iterator[tuple[int, Sequence[Any], str]]:
    """For each run its place, the predicted drops, and why there are no more."""
    if built.members:
        for row, prediction in enumerate(one.predict() for one in built.members):
            yield row, prediction.drops, prediction.reason
        return
    predictor, template = linear.PREDICTORS[built.experiment.theory], built.template
    stacked = built.weights()
    for number, task in enumerate(built.tasks):
        rows = np.flatnonzero(built.task_of == number)
        factor = np.sqrt(built.factors[rows[0]])  # time goes with the square of the weights
        weights = type(template).theory_weights({name: factor * each[rows] for name, each in stacked.items()})
        if built.rotations is not None:
            weights = _in_eigenvectors(weights, built.rotations[rows])
        for row, found in zip(rows.tolist(), predictor.drops_of_runs(task, weights), strict=True):
            yield row, found, found.reason or ""


def _in_eigenvectors(weights: dict[str, Any], rotations: Float[np.ndarray, "run dim dim"]) -> dict[str, Any]:
    made = dict(weights)
    for name in ("keys", "queries"):
        if name in made:
            made[name] = np.einsum("r...i,rij->r...j", made[name], rotations)
    if "key_queries" in made:
        made["key_queries"] = np.einsum("rji,rhjk,rkl->rhil", rotations, made["key_queries"], rotations, optimize=True)
    return made


def _levels(built: Built) -> Float[np.ndarray, "run level"]:
    """The levels that the loss of each run can visit; not a number where a run has fewer of them than another."""
    if built.members:
        pairs = [(member, built.tasks[at]) for member, at in zip(built.members, built.task_of.tolist(), strict=True)]
    else:
        pairs = [(built.experiment, task) for task in built.tasks]
    # Levels of a network of units are those that it comes to from its own weights.
    own = bool(built.members) and built.experiment.theory == "units"
    predicted = (one.predict(None if own else Parts(task, built.template, None)) for one, task in pairs)
    rows = itertools.zip_longest(*([level.loss for level in one.levels] for one in predicted), fillvalue=np.nan)
    levels = np.array([*rows], float).reshape(-1, len(pairs)).T
    return levels if built.members else levels[built.task_of]


def regime(measured: Measured) -> Scalars:
    """How the loss falls, by its every step: "monotone"; "catapult", where it rises on the way and comes to rest;
    "cycles", where it does not, and returns to values above those before; "diverged"."""
    losses = measured.losses
    scale = np.abs(losses[:, :1])
    with np.errstate(invalid="ignore"):
        rises = np.diff(losses, axis=1) > _SETTLED * scale
        late = rises[:, -min(_LAST, max(1, losses.shape[1] // 4)) :].any(axis=1)
    codes = np.select([~measured.finite, late, rises.any(axis=1)], [3, 2, 1], 0).astype(np.int32)
    made = {"regime": Column(codes, ("monotone", "catapult", "cycles", "diverged"))}
    return made | _critical_rates(measured.built)


def _critical_rates(built: Built) -> Scalars:
    """Where the theory has catapults and cycles begin, for merged attention from small weights."""
    experiment = built.experiment
    loss = built.losses.stacked if isinstance(built.losses, Ensemble) else built.losses
    if experiment.theory != "merged" or experiment.no_theory() or not isinstance(loss, Population):
        return {}
    each = np.array([linear.merged_critical_rates(task) for task in built.tasks])[built.task_of]
    each = each / built.factors[:, None]
    return {"catapult_rate": Column(each[:, 0].copy()), "cycle_rate": Column(each[:, 1].copy())}


def effective_map(measured: Measured) -> Scalars:
    r"""$\lambda_d\, e_d^\top A e_d$ at the end, for each eigenvector of the inputs, in the order in which their
    eigenvalues were given, or else falling: near 1 (less what the finite context costs) where that component is
    learned."""
    built, normalization = measured.built, measured.built.experiment.normalization
    predictor = linear.PREDICTORS[measured.built.experiment.theory]
    maps = predictor.effective_map(type(built.template).theory_weights(measured.last))
    spectra = [_spectrum(task) for task in built.tasks]
    basis = np.stack([spectrum.vectors for spectrum in spectra])[built.task_of]
    basis = basis if built.rotations is None else built.rotations @ basis
    maps = np.einsum("rji,rjk,rkl->ril", basis, maps, basis, optimize=True)
    lengths = [task.context.longest for task in built.tasks]  # compared with attention divided by N
    divided = [length * paper_time.attention_factor(normalization, length) for length in lengths]
    divided = [1.0] * len(lengths) if normalization == "1/N" else divided
    scaled = np.array([one * spectrum.values for one, spectrum in zip(divided, spectra, strict=True)])[built.task_of]
    return _numbered("map", np.diagonal(maps, axis1=1, axis2=2) * scaled)


def _spectrum(task: Any) -> Spectrum:
    known = isinstance(task, RegressionTask | InContextInWeightMixture)
    inputs = task.covariance if known else population_moments(task).input
    spectrum = spectrum_of(inputs)
    values, vectors, exact = spectrum
    return spectrum if exact else Spectrum(values[::-1], vectors[:, ::-1], exact)  # read off the matrix they rise


def allocation(measured: Measured) -> Scalars:
    """Of several regressions, how many heads serve a task at the end, how many tasks have a head with another, and
    whether any has."""
    flat = [part.reshape(part.shape[0], -1) for part in measured.last.values()]
    ended = Ensemble.like(measured.built.template, np.concatenate(flat, axis=1)).stacked
    omega, mu = eqx.filter_vmap(lambda model: (model.omega(), model.mu()))(ended)
    allocated = head_task_allocation(np.asarray(omega), np.asarray(mu))
    served = (allocated.head >= 0).sum(axis=-1)
    counts = {
        "heads_used": allocated.heads_used,
        "tasks_served": served,
        "tasks_sharing": served - allocated.heads_used,
        "shared": served > allocated.heads_used,
    }
    return {name: Column(np.where(measured.finite, count, np.nan)) for name, count in counts.items()}


COMPUTED: dict[str, Callable[[Measured], Scalars]] = {
    "drops": drops,
    "predicted": predicted,
    "regime": regime,
    "map": effective_map,
    "allocation": allocation,
}


def scalars_of(measured: Measured) -> Scalars:
    made = basic(measured)
    for name in measured.built.experiment.record.measure:
        made |= COMPUTED[name](measured)
    return made
