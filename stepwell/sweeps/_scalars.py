"""One number, or one word, of each run: what a study plots and filters by."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from stepwell._util import paper_time
from stepwell.analysis import head_task_allocation
from stepwell.dynamics import Ensemble
from stepwell.experiments import normalization_of, note_of, predict, theory_name, theory_task
from stepwell.store import Column
from stepwell.theory import linear, softmax

from ._stacked import Built

_SETTLED = 1e-6
"""The loss rests where it changes by less than this part of itself, and rises where it does so by more."""
_LAST = 32
"""Steps at the end at which the loss has to rest."""
_GOOD = ("", "finished", "converged", "stuck")
"""Outcomes of a solver after which a loss is that of the end."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """What is known of a group of runs when they have ended."""

    built: Built
    losses: Float[np.ndarray, "run point"]
    """Not a number from the point on at which a run stopped being finite."""
    points: np.ndarray
    """Steps, or times."""
    unit_times: Float[np.ndarray, " run"] | None
    """The paper's time for one unit of these, where it is known."""
    last: dict[str, np.ndarray]
    """Weights at the end."""
    outcomes: np.ndarray | None = None
    """What a solver said of each run; empty where it said nothing."""

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

    It is interpolated between measured points; not a number where that level is not reached.
    """
    levels, points = _levels(measured.built), measured.points
    assert measured.unit_times is not None
    lowest = np.minimum.accumulate(np.where(np.isfinite(measured.losses), measured.losses, np.inf), axis=1)
    rows = np.arange(lowest.shape[0])
    made: Scalars = {}
    for number in range(levels.shape[1] - 1):
        half = (levels[:, number] + levels[:, number + 1]) / 2
        below = lowest <= half[:, None]
        place = np.maximum(np.argmax(below, axis=1), 1)
        before, after = lowest[rows, place - 1], lowest[rows, place]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.clip((before - half) / (before - after), 0.0, 1.0)
            when = points[place - 1] + part * (points[place] - points[place - 1])
        when = np.where(below.any(axis=1), np.where(below[:, 0], 0.0, when), np.nan)
        made[f"drop_{number + 1}"] = Column(when * measured.unit_times)
    return made


def predicted(measured: Measured) -> Scalars:
    """The same times, predicted from the initial weights; not a number where the theory has none."""
    built = measured.built
    count = _levels(built).shape[1] - 1
    made = np.full((built.size, count), np.nan)
    for row, times in _predictions(built):
        made[row, : len(times[:count])] = times[:count]
    return {f"predicted_{number + 1}": Column(made[:, number].copy()) for number in range(count)}


def _predictions(built: Built) -> Any:
    """The predicted times of each run, by its place."""
    if built.members:
        yield from ((row, [drop.time for drop in predict(one).drops]) for row, one in enumerate(built.members))
        return
    predictor, template = linear.PREDICTORS[str(theory_name(built.experiment))], built.template
    stacked = built.weights()
    for number, task in enumerate(built.tasks):
        rows = np.flatnonzero(built.task_of == number)
        factor = np.sqrt(built.factors[rows[0]])  # time goes with the square of the weights
        weights = type(template).theory_weights({name: factor * each[rows] for name, each in stacked.items()})
        if built.rotations is not None:
            weights = _in_eigenvectors(weights, built.rotations[rows])
        for row, found in zip(rows.tolist(), predictor.drops_of_runs(task, weights), strict=True):
            yield row, [drop.time for drop in found]


def _in_eigenvectors(weights: dict[str, Any], rotations: Float[np.ndarray, "run dim dim"]) -> dict[str, Any]:
    """Keys and queries, or their products, in the basis of the eigenvectors of each run."""
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
        both = zip(built.members, built.task_of.tolist(), strict=True)
        return _padded([_levels_of(built, member, built.tasks[at]) for member, at in both])
    return _padded([_levels_of(built, built.experiment, task) for task in built.tasks])[built.task_of]


def _levels_of(built: Built, experiment: Any, task: Any) -> np.ndarray:
    if note_of(experiment.model.kind, "reads") == "spectra":
        return np.array([float(task.signals.sum()), float(softmax.flow_limit_loss(task).sum())])
    losses = linear.levels(theory_task(experiment, task)[0])
    template = built.template
    weights = type(template).theory_weights({name: np.asarray(each) for name, each in template.weights().items()})
    pairs = weights["values"].shape[-1] * (weights["keys"].shape[-2] if "keys" in weights else 1)
    predictor = linear.PREDICTORS[str(theory_name(experiment))]
    return np.asarray(losses)[predictor.plateaus(int(np.sum(np.diff(losses) < 0)), pairs)]


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    made = np.full((len(rows), max(row.size for row in rows)), np.nan)
    for place, row in enumerate(rows):
        made[place, : row.size] = row
    return made


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
    """The rates at which the theory has catapults and cycles begin, for merged attention from small weights."""
    experiment = built.experiment
    known = experiment.task.kind == "regression" and experiment.objective.kind == "population"
    if not known or theory_name(experiment) != "merged" or experiment.task.outputs != 1:
        return {}
    each = np.array([linear.merged_critical_rates(task) for task in built.tasks])[built.task_of]
    each = each / built.factors[:, None]
    return {"catapult_rate": Column(each[:, 0].copy()), "cycle_rate": Column(each[:, 1].copy())}


def effective_map(measured: Measured) -> Scalars:
    r"""$\lambda_d\, e_d^\top A e_d$ at the end, for each eigenvector of the inputs, in the order in which their
    eigenvalues were given: near 1 (less what the finite context costs) where that component is learned."""
    built, experiment = measured.built, measured.built.experiment
    predictor = linear.PREDICTORS[str(theory_name(experiment))]
    maps = predictor.effective_map(type(built.template).theory_weights(measured.last))
    if built.rotations is not None:
        maps = np.einsum("rji,rjk,rkl->ril", built.rotations, maps, built.rotations, optimize=True)
    lam, normalization = _eigenvalues(built), normalization_of(experiment)
    lengths = [task.context.longest for task in built.tasks]  # compared with attention divided by N
    divided = [length * paper_time.attention_factor(normalization, length) for length in lengths]
    divided = [1.0] * len(lengths) if normalization == "1/N" else divided
    diagonal = np.diagonal(maps, axis1=1, axis2=2) * lam * np.array(divided)[built.task_of][:, None]
    return {f"map_{number + 1}": Column(diagonal[:, number].copy()) for number in range(diagonal.shape[1])}


def _eigenvalues(built: Built) -> Float[np.ndarray, "run dim"]:
    if built.members:
        return np.array([member.task.eigenvalues for member in built.members])
    return np.stack([np.diag(task.covariance) for task in built.tasks])[built.task_of]


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
    """All that is asked for."""
    made = basic(measured)
    for name in measured.built.experiment.record.measure:
        made |= COMPUTED[name](measured)
    return made
