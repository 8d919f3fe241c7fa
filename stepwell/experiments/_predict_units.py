"""What the theory of networks of units says of an experiment: drops from the initial weights, and their levels."""

import dataclasses
from typing import Any

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell.theory import linear, units

from ._experiment import Experiment
from ._keys import Keys
from ._kinds._models import supervised
from ._prediction import Course, DropForecast, Level

LABEL = "theory: drops from the initial weights"


def no_units_theory(experiment: Experiment) -> str:
    """Why there is no theory of a network of units; an empty string if there is."""
    kind = experiment.model.get("nonlinearity")
    if kind is None:  # polynomial
        return ""
    if kind != "relu" or experiment.model.get("patches", 1) != 1:
        return f"there is no theory of {kind} units" + (" of several patches" if kind == "relu" else "")
    if supervised(experiment.sections) != "data":
        task = experiment.task.kind
        return f"ReLU networks are predicted for data at right angles, as of the task points, and not for {task}"
    return ""


def trained_on(experiment: Experiment, task: Any) -> Any:
    """The task, or the examples drawn of it, where finitely many are trained on."""
    from stepwell.tasks import GivenExamples

    count = experiment.objective.get("examples")
    return task if count is None else GivenExamples(task.examples(count, key=Keys(experiment.seed).train))


def schedule(experiment: Experiment, task: Any, model: Any) -> linear.Drops[units.UnitDrop]:
    """The drops of the flow."""
    from stepwell.analysis import unit_drops

    try:
        return unit_drops(trained_on(experiment, task), model)
    except InvalidInput as error:
        return linear.Drops(reason=str(error))


def levels(made: linear.Drops[units.UnitDrop]) -> tuple[Level, ...]:
    """Those that the predicted drops are between."""
    losses = [*(drop.level_before for drop in made[:1]), *(drop.level_after for drop in made)]
    return tuple(Level(loss, number) for number, loss in enumerate(losses))


def drops_of(experiment: Experiment, made: linear.Drops[units.UnitDrop]) -> tuple[tuple[DropForecast, ...], str]:
    """The predicted drops, and why some or all are missing. Components count drops, and heads are units."""
    training, per_step = experiment.training, None
    if training.kind == "descent":
        if (training.optimizer, training.schedule) != ("sgd", "constant"):
            return (), "times are predicted for gradient descent at a constant rate, and not for other optimizers"
        per_step = experiment.time_scale.of_steps(1.0, training.rate)
    apart = experiment.model.get("degree", 0) != 1
    drops = []
    for number, drop in enumerate(made, start=1):
        step, off = (None, drop.uncertainty) if per_step is None else (drop.time / per_step, None)
        drops.append(DropForecast(drop.time, off, step, drop.unit + 1 if apart else None, number))
    return tuple(drops), made.reason


def document(
    experiment: Experiment, own: tuple[Level, ...], drops: tuple[DropForecast, ...], reason: str, rivals: list[int]
) -> dict[str, Any]:
    """The JSON document."""
    from ._predict_linear import levels_alone

    near = ", ".join(map(str, rivals))
    return levels_alone(experiment, own, reason) | {
        "components_count_from": 1,
        "heads_count_from": 1,
        "drops": [dataclasses.asdict(drop) for drop in drops],
        "remark": f"near ties, where another unit or direction may come first: drop {near}" if rivals else None,
    }


def course(made: linear.Drops[units.UnitDrop], drops: tuple[DropForecast, ...], times: np.ndarray) -> Course:
    """The staircase of levels."""
    at = np.array([drop.time for drop in drops])
    edges = np.concatenate([at * (1 - 1e-12), at])
    times = np.union1d(times, edges[edges <= times[-1]])
    losses = np.array([level.loss for level in levels(made)])
    return Course(times, losses[np.searchsorted(at, times, side="right")], drops, LABEL)
