"""Networks of units beside their theory: the drops of the narrow networks that they follow."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.runs import with_runs
from stepwell.models import AbstractModel, AbstractUnits, ActivationUnits, PolynomialUnits, theory_of
from stepwell.tasks import AbstractSupervisedTask
from stepwell.theory import linear, units

from ._compare import ComparedDrop, ComparedRun, Comparison, Convention, _Axis, _curve, _plateau, _span
from ._recorded import recorded
from ._staircase import is_hidden, level_drops, noise_of


@checked
def unit_drops(
    task: AbstractSupervisedTask, model: AbstractModel, *, until: float = np.inf
) -> linear.Drops[units.UnitDrop]:
    """Return the drops of a network of units, predicted from its initial weights.

    They are those of `theory.units`: `direction_schedule` of linear networks, `unit_schedule` of other polynomial ones,
    and `ray_schedule` of ReLU networks.

    **Arguments:**

    - `task`: the inputs with their labels.
    - `model`: the network with its initial weights.
    - `until`: the time of the last drop that is asked for.

    **Returns:** the drops in order of time, with the reason why there are no more. `InvalidInput` is raised for
    networks and data of which there is no theory.

    **Example:**

    >>> task = sw.tasks.GaussianTeacher([1.0, 0.5], [1.0, 1.0], separate=True)
    >>> model = sw.models.PolynomialUnits.random(dim=2, outputs=2, units=10, scale=1e-3, key=jax.random.key(0))
    >>> len(sw.analysis.unit_drops(task, model))
    2
    """
    if isinstance(model, AbstractUnits) and (model.dim, model.outputs) != (task.dim, task.outputs):
        raise InvalidInput(
            f"the model has inputs of {model.dim} entries and {model.outputs} outputs, the task {task.dim} and "
            f"{task.outputs}; they must agree"
        )
    declared = theory_of(type(model)) == "units"
    if declared and isinstance(model, PolynomialUnits):
        weights = np.asarray(model.outer, float), np.asarray(model.inner, float)
        if model.degree == 1:
            return units.direction_schedule(task, *weights, until=until)
        return units.unit_schedule(task, *weights, model.degree, until=until)
    relu = declared and isinstance(model, ActivationUnits) and model.nonlinearity == "relu"
    if not isinstance(model, ActivationUnits) or not relu or model.outputs * model.patches > 1:
        raise InvalidInput(
            "drops are predicted for PolynomialUnits, and for ActivationUnits with relu, one output and one patch"
        )
    batch = task.examples()
    shares = np.asarray(batch.weights)
    if np.ptp(shares) > 1e-12 * shares.max():
        raise InvalidInput("the examples have unequal weights; drops of ReLU networks are predicted for equal ones")
    inputs, labels = np.asarray(batch.features, float), np.asarray(batch.labels, float)[:, 0]
    outer, inner = np.asarray(model.outer, float)[:, 0, 0], np.asarray(model.inner, float)
    return units.ray_schedule(inputs, labels, outer, inner, until=until)


def compare_units(trajectory: xr.Dataset, task: AbstractSupervisedTask) -> Comparison:
    """What `compare` returns for networks of units.

    Levels are those of each run's own prediction. A loss that is a mean over O outputs is 1/O of their sum, and its
    flow O times as slow. The unit that made a drop is the one whose part of the map, $|v||u|^p$, has grown most between
    the recorded weights before and after.
    """
    trajectory = with_runs(trajectory)
    record = recorded(trajectory, None)
    template: Any = record.template
    linear_units = getattr(template, "degree", 0) == 1
    degree = getattr(template, "degree", 1)
    share = 1 / task.outputs if _is_mean(trajectory) else 1.0
    remarks, runs = list[str](), []
    for number, name in enumerate(trajectory["run"].values.tolist()):
        axis = _Axis.of(trajectory, number, Convention(1.0, 1.0, 1.0))
        weights = {key: value[number] for key, value in record.weights.items()}
        predicted = unit_drops(task, template.with_weights({key: value[0] for key, value in weights.items()}))
        remarks += [f"run {name}: {predicted.reason}"] if predicted.reason else []
        scaled = [_scaled(drop, share) for drop in predicted]
        levels = np.array([*(drop.level_before for drop in scaled[:1]), *(drop.level_after for drop in scaled)])
        time, loss = _curve(trajectory, number)
        measured = level_drops(time, loss, levels) if levels.size else ()
        sizes = np.linalg.norm(weights["outer"], axis=(2, 3)) * np.linalg.norm(weights["inner"], axis=2) ** degree
        drops = []
        for place, (drop, seen) in enumerate(zip(scaled, measured, strict=True)):
            if drop.rival is not None:
                remarks.append(
                    f"run {name}: at drop {place + 1} another unit or direction grows at nearly the same time"
                )
            when, timed = axis.time(seen.time), np.isfinite(axis.times).all()
            clear = seen.status != "not reached" and not is_hidden(seen.before, seen.after, noise_of(loss))
            span = _span(measured, place, record.coordinates[record.axis]) if clear and not linear_units else None
            late = seen.status == "not reached" and drop.time > axis.times[-1]
            compared = ComparedDrop(
                int(name),
                place + 1,
                component=place + 1,
                head=None if linear_units else drop.unit + 1,
                predicted=drop.time if timed else np.nan,
                predicted_step=axis.step(drop.time) if timed else np.nan,
                uncertainty=drop.uncertainty if timed and not axis.stepped else np.nan,
                measured=when,
                measured_step=seen.time if axis.stepped else np.nan,
                error=when / drop.time - 1,
                level=seen.after,
                measured_level=_plateau(time, loss, measured[place:]),
                measured_component=None,
                measured_head=None if span is None else int(np.argmax(sizes[span[1]] - sizes[span[0]])) + 1,
                in_order=None,
                status="after the end" if late else seen.status,
                population=None,
            )
            drops.append(compared)
        initial = {key: value[0] for key, value in weights.items()}
        runs.append(ComparedRun("units", task, initial, levels, list(range(levels.size)), tuple(drops)))
    return Comparison(tuple(runs), "step" in trajectory.dims, tuple(remarks))


def _is_mean(trajectory: xr.Dataset) -> bool:
    """Whether the loss of a run says that it is a mean over outputs."""
    try:
        loss = json.loads(trajectory.attrs["configuration"])["objective"]
        return loss.get("stacked", loss).get("reduce") == "mean"
    except (KeyError, ValueError, TypeError, AttributeError):
        return False


def _scaled(drop: units.UnitDrop, share: float) -> units.UnitDrop:
    """The drop of a part of the loss, in its own time."""
    return replace(
        drop,
        time=drop.time / share,
        uncertainty=drop.uncertainty / share,
        level_before=share * drop.level_before,
        level_after=share * drop.level_after,
    )
