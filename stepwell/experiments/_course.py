"""Theory beside a run: levels of the loss, its course from the initial weights, and drops compared."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell.theory import IntegrationFailed, softmax

from ._build import build_model, build_task, keys_of
from ._experiment import Experiment
from ._kind import note_of
from ._predict_linear import Described, describe_linear, drops_of, sample_of
from ._prediction import DropForecast, Level, no_comparison, no_theory
from ._run import experiment_and_seeds

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.analysis import Comparison

_POINTS = 2001
"""Times at which a predicted course is drawn."""


class Course(NamedTuple):
    """A predicted loss by time, and its drops."""

    times: np.ndarray
    loss: np.ndarray
    drops: tuple[DropForecast, ...]
    label: str


def predicted_levels(experiment: Experiment) -> tuple[Level, ...]:
    """Return the levels of the loss that a run of an experiment can visit.

    **Arguments:**

    - `experiment`: the experiment.

    **Returns:** the levels of its prediction. Of several regressions, those before and after all are learned, to
    leading order, if each has a head. None where there is no theory.

    **Example:**

    >>> import stepwell as sw
    >>> [level.learned for level in sw.experiments.predicted_levels(sw.Experiment(model="merged"))]
    [0, 4]
    """
    if note_of(experiment.model.kind, "reads") == "spectra":
        task = build_task(experiment, keys_of(experiment.seed))
        if experiment.model.heads < len(task.dims):
            return ()
        ends = float(task.signals.sum()), float(softmax.flow_limit_loss(task).sum())
        return Level(ends[0], 0), Level(ends[1], len(task.dims))
    return () if no_theory(experiment) else _described(experiment).levels


def predicted_course(experiment: Experiment, until: float) -> tuple[Course | None, str]:
    """Return the course of the loss that theory predicts from the initial weights of an experiment.

    **Arguments:**

    - `experiment`: the experiment.
    - `until`: the time t/τ to which it is wanted.

    **Returns:** the `Course`, and a line if drops are missing; or None, and the line that says why there is none.

    **Example:**

    >>> import stepwell as sw
    >>> course, reason = sw.experiments.predicted_course(sw.Experiment(model="merged"), 2000.0)
    >>> len(course.drops), reason
    (1, '')
    """
    if note_of(experiment.model.kind, "reads") == "spectra":
        return None, "times of several regressions are bounds, those of stepwell predict; nothing is drawn"
    reason = no_theory(experiment)
    if reason:
        return None, f"{reason}; nothing is drawn"
    theory = _described(experiment)
    drops, reason = drops_of(experiment, theory)
    training = experiment.training
    if training.kind == "descent" and (training.optimizer, training.schedule) != ("sgd", "constant"):
        return None, reason
    try:
        made = theory.predictor.course(theory.task, theory.weights, np.linspace(0.0, until, _POINTS))
    except (IntegrationFailed, InvalidInput) as error:
        return None, str(error)
    return Course(made.times, made.loss, drops, theory.predictor.course_label), reason


def _described(experiment: Experiment) -> Described:
    keys = keys_of(experiment.seed)
    task = build_task(experiment, keys)
    return describe_linear(experiment, task, build_model(experiment, task, keys))


def compare_run(trajectory: "xr.Dataset") -> "Comparison":
    """Return the drops of a run, predicted and measured: `analysis.compare` with its own task and sample.

    **Arguments:**

    - `trajectory`: what `Experiment.run` returned, or what `load` read.

    **Returns:** the `analysis.Comparison`, with a run for each seed. `InvalidInput` is raised where there is no theory
    of the experiment.

    **Example:**

    >>> import stepwell as sw
    >>> run = sw.Experiment(task={"dim": 2}, model={"scale": 0.01}).run(progress=False)
    >>> sw.experiments.compare_run(run).table["status"].tolist()
    ['measured', 'measured']
    """
    from stepwell.analysis import Comparison, compare

    experiment, seeds = experiment_and_seeds(trajectory)
    if reason := no_comparison(experiment):
        raise InvalidInput(f"{reason}; nothing is compared")
    made = []
    for number, seed in enumerate([experiment.seed] if seeds is None else seeds):
        one = experiment.replace(seed=seed)
        task = build_task(one, keys_of(seed))
        made.append(compare(trajectory.isel(run=[number]), task, sample=sample_of(one)))
    runs = tuple(run for each in made for run in each.runs)
    remarks = dict.fromkeys(remark for each in made for remark in each.remarks)
    return Comparison(runs, made[0].stepped, tuple(remarks))
