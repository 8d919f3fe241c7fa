"""One number, or one word, of each run: what a study plots and filters by."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell._errors import InvalidInput
from stepwell.dynamics import Ensemble, time_factor, weight_factor
from stepwell.models import class_of
from stepwell.probes import head_task_allocation
from stepwell.published.training import levels_of, paper_time
from stepwell.theory import linear

from ._build import Built
from ._column import Column

_SETTLED = 1e-6
"""The loss rests where it changes by less than this part of itself, and rises where it does so by more."""
_LAST = 32
"""Steps at the end at which the loss has to rest."""


class Measured(NamedTuple):
    """What is known of the runs of a shard when they have ended."""

    built: Built
    steps: np.ndarray
    losses: Float[np.ndarray, "run step"]
    """Not a number from the step on at which a run stopped being finite."""
    run: xr.Dataset
    """Weights at snapshots."""
    failed: np.ndarray
    """Whether a run was given up by its solver."""

    @property
    def finite(self) -> np.ndarray:
        return np.asarray(np.isfinite(self.losses).all(axis=1))


Scalars = dict[str, Column]


def basic(measured: Measured) -> Scalars:
    """Outcome and losses, which every run has."""
    losses, finite = measured.losses, measured.finite
    last = np.where(finite, losses[:, -1], np.nan)
    with np.errstate(invalid="ignore"):
        largest = np.where(finite, np.max(losses, axis=1), np.inf)
    codes = np.where(measured.failed, 2, np.where(finite, 0, 1)).astype(np.int32)
    return {
        "outcome": Column(codes, ("finished", "diverged", "solver failed")),
        "first_loss": Column(losses[:, 0].copy()),
        "final_loss": Column(last),
        "largest_loss": Column(largest),
    }


def drops(measured: Measured) -> Scalars:
    r"""When the loss passes half-way from one level of the theory to the next, in flow time $t/\tau$.

    It is interpolated between measured points; not a number where that level is not reached.
    """
    built = measured.built
    levels, steps = _levels(built, "drops"), measured.steps
    lowest = np.minimum.accumulate(np.where(np.isfinite(measured.losses), measured.losses, np.inf), axis=1)
    made: Scalars = {}
    for number in range(levels.shape[1] - 1):
        half = (levels[:, number] + levels[:, number + 1]) / 2
        below = lowest <= half[:, None]
        place = np.maximum(np.argmax(below, axis=1), 1)
        rows = np.arange(lowest.shape[0])
        before, after = lowest[rows, place - 1], lowest[rows, place]
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.clip((before - half) / (before - after), 0.0, 1.0)
            when = steps[place - 1] + part * (steps[place] - steps[place - 1])
        when = np.where(below.any(axis=1), np.where(below[:, 0], 0.0, when), np.nan)
        made[f"drop_{number + 1}"] = Column(when * _step_times(built))
    return made


def _step_times(built: Built) -> Float[np.ndarray, " run"]:
    r"""The flow time $t/\tau$ of one step, of each run."""
    contexts = np.array([task.lengths.longest for task in built.tasks] or [built.setup.flags.context])
    at_rate_one = [dataclasses.replace(built.setup.flags, lr=1.0, seq_len=int(context) + 1) for context in contexts]
    each = np.array([float(paper_time(built.setup._replace(flags=flags), 1.0)) for flags in at_rate_one])
    return each[built.task_of] * built.rates


def predicted(measured: Measured) -> Scalars:
    """The same times, predicted from the initial weights; not a number where the theory has none."""
    built = measured.built
    kind = built.setup.flags.kind
    assert kind.theory is not None
    model, predictor = built.setup.model, linear.PREDICTORS[kind.theory]
    stacked = {name: np.asarray(values) for name, values in built.models.stacked.weights().items()}
    count = _levels(built, "predicted").shape[1] - 1
    made = np.full((built.models.size, count), np.nan)
    for number, task in enumerate(built.tasks):
        rows = np.flatnonzero(built.task_of == number)
        length: Any = {"length": task.lengths.longest, "factors": model.factors}  # pyright: ignore
        factor = weight_factor(built.setup.normalisation, "1/N", **length)
        weights = class_of(kind).theory_weights({name: factor * values[rows] for name, values in stacked.items()})
        if built.rotations is not None:
            weights = _in_eigenvectors(weights, built.rotations[rows])
        for row, drops in zip(rows, predictor.drops_of_runs(task, weights), strict=True):
            times = [drop.time for drop in drops][:count]
            made[row, : len(times)] = times
    return {f"predicted_{number + 1}": Column(made[:, number].copy()) for number in range(count)}


def _in_eigenvectors(weights: dict[str, Any], rotations: Float[np.ndarray, "run dim dim"]) -> dict[str, Any]:
    """Keys and queries, or their products, in the basis of the eigenvectors of each run."""
    made = dict(weights)
    for name in ("keys", "queries"):
        if name in made:
            made[name] = np.einsum("r...i,rij->r...j", made[name], rotations)
    if "key_queries" in made:
        made["key_queries"] = np.einsum("rji,rhjk,rkl->rhil", rotations, made["key_queries"], rotations, optimize=True)
    return made


def _levels(built: Built, measure: str) -> Float[np.ndarray, "run level"]:
    """The levels that the loss of each run can visit."""
    first = levels_of(built.setup)
    if first is None:
        raise InvalidInput(
            f"measure {measure} needs the theory's levels, and there are none for these runs; leave it out"
        )
    if not built.tasks:
        return np.broadcast_to(np.array(first.losses), (built.models.size, len(first.losses)))
    each = np.stack([np.asarray(linear.levels(task))[first.learned] for task in built.tasks])
    return each[built.task_of]


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
    if not built.tasks or built.setup.flags.kind.theory != "merged" or built.setup.flags.out_dim != 1:
        return {}
    made = []
    for task in built.tasks:
        length: Any = {"length": task.lengths.longest, "factors": built.setup.model.factors}  # pyright: ignore
        factor = time_factor(built.setup.normalisation, "1/N", **length)
        made.append([rate / factor for rate in linear.merged_critical_rates(task)])
    each = np.array(made)[built.task_of]
    return {"catapult_rate": Column(each[:, 0].copy()), "cycle_rate": Column(each[:, 1].copy())}


def effective_map(measured: Measured) -> Scalars:
    r"""$\lambda_d\, e_d^\top A e_d$ at the end, for each eigenvector of the inputs, in the order in which their
    eigenvalues were given: near 1 (less what the finite context costs) where that component is learned."""
    built = measured.built
    kind = built.setup.flags.kind
    weights = {name: measured.run[name].isel(snapshot=-1).values for name in built.setup.model.weight_dims}
    assert kind.theory is not None
    maps = linear.PREDICTORS[kind.theory].effective_map(class_of(kind).theory_weights(weights))
    if built.rotations is not None:
        maps = np.einsum("rji,rjk,rkl->ril", built.rotations, maps, built.rotations, optimize=True)
    lam = np.stack([np.diag(task.covariance) for task in built.tasks])[built.task_of]
    lengths = np.array([task.lengths.longest if built.setup.normalisation == "none" else 1 for task in built.tasks])
    diagonal = np.diagonal(maps, axis1=1, axis2=2) * lam * lengths[built.task_of][:, None]
    return {f"map_{number + 1}": Column(diagonal[:, number].copy()) for number in range(diagonal.shape[1])}


def allocation(measured: Measured) -> Scalars:
    """Of several regressions, how many heads serve a task at the end, how many tasks have a head with another, and
    whether any has."""
    built = measured.built
    last = [measured.run[name].isel(snapshot=-1).values for name in built.setup.model.weight_dims]
    weights = np.concatenate([part.reshape(part.shape[0], -1) for part in last], axis=1)
    ended = Ensemble.like(built.setup.model, weights).stacked
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


def scalars_of(measured: Measured, measure: tuple[str, ...]) -> Scalars:
    """All that is asked for."""
    made = basic(measured)
    for name in measure:
        made |= COMPUTED[name](measured)
    return made
