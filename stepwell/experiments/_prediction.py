"""What theory says of an experiment before anything is trained, from its own task, sample and initial weights."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.progress import Meter
from stepwell._util.runs import with_runs

from ._experiment import Built, Experiment
from ._kind import note_of
from ._memory import check_prediction

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from stepwell.analysis import Comparison

    from ._predict_linear import Described

_POINTS = 2001
"""Times at which a predicted course is drawn."""


@dataclasses.dataclass(frozen=True)
class Level:
    """A plateau of the loss, and how many components are learned there."""

    loss: float
    learned: int


@dataclasses.dataclass(frozen=True)
class DropForecast:
    """A drop of the loss: the time t/τ at which it is halfway down, its step if there are steps, who makes it.

    Of 100 times at least some 95 are off by less than their `uncertainty`, in t/τ. It is that of the flow at infinitely
    many sequences: None for training in steps, which is later, and on finitely many sequences. Head and component count
    from 1; None is all of them.
    """

    time: float
    uncertainty: float | None
    step: float | None
    head: int | None
    component: int | None


class Course(NamedTuple):
    """A predicted loss by time, and its drops."""

    times: "np.ndarray"
    loss: "np.ndarray"
    drops: tuple[DropForecast, ...]
    label: str


class Prediction:
    """What theory says of an experiment. Each part is computed when it is first asked for; `str` is a table of all.

    `WouldNotFit` is raised where its initial weights, or the moments of its sequences, would not fit in memory.
    """

    @checked
    def __init__(self, experiment: Experiment, built: Built | None = None):
        self.experiment = experiment
        self._built = built
        self._several = note_of(experiment.model.kind, "reads") == "spectra"
        if experiment.task.kind != "multitask":
            self._missing = no_theory(experiment)
        else:
            model = experiment.model.kind
            self._missing = "" if self._several else f"there is no theory of the model {model} on this task"
        self._units = not (self._missing or self._several) and experiment.theory == "units"

    @functools.cached_property
    def _task(self) -> Any:
        check_prediction(self.experiment)  # before anything is built
        return self.experiment.build_task() if self._built is None else self._built.task

    @functools.cached_property
    def _model(self) -> Any:
        return self.experiment.build_model(self._task) if self._built is None else self._built.model

    @functools.cached_property
    def _theory(self) -> "Described":
        from ._predict_linear import describe

        return describe(self.experiment, self._task, self._model)

    @functools.cached_property
    def _schedule(self) -> Any:
        """The drops of a network of units."""
        from ._predict_units import schedule

        return schedule(self.experiment, self._task, self._model)

    @functools.cached_property
    def _plateaus(self) -> tuple[Level, ...]:
        """The levels of a network of units, where its loss knows them."""
        if self.experiment.objective.kind != "features":
            return ()
        task, model = self._task, self._model
        objective = None if self._built is None else self._built.objective
        if objective is None:
            objective = self.experiment.build_objective(task, model)
        losses = objective.plateaus(model)
        return () if losses is None else tuple(Level(float(loss), rank) for rank, loss in enumerate(losses))

    @functools.cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels of the loss that a run can visit; none where there is no theory.

        Of several regressions, those before and after all are learned, to leading order, if each has a head.
        """
        if self._units:
            from ._predict_units import levels

            return self._plateaus or levels(self._schedule)
        if not self._several:
            return self._plateaus if self._missing else self._theory.levels
        from stepwell.theory import softmax

        if self.experiment.model.heads < len(self._task.dims):
            return ()
        last = float(softmax.flow_limit_loss(self._task).sum())
        return Level(float(self._task.signals.sum()), 0), Level(last, len(self._task.dims))

    @functools.cached_property
    def _drops(self) -> tuple[tuple[DropForecast, ...], str]:
        if self._units:
            from . import _predict_units

            return _predict_units.drops_of(self.experiment, self._schedule)
        from ._predict_linear import drops_of

        return ((), self._missing) if self._missing or self._several else drops_of(self.experiment, self._theory)

    @property
    def drops(self) -> tuple[DropForecast, ...]:
        """The drops of the loss of linear attention on one regression, or of a network of units, in their order."""
        return self._drops[0]

    @property
    def reason(self) -> str:
        """Why there is no prediction, or why some drops are missing; an empty string if all is there."""
        drops, reason = self._drops
        complete = reason or self._several or len(drops) >= len(self.levels) - 1
        return reason if complete else "no head is left"

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """All of it as plain values; empty where there is no theory."""
        if self._missing:
            from ._predict_linear import levels_alone

            return levels_alone(self.experiment, self.levels, self.reason) if self.levels else {}
        if self._units:
            from . import _predict_units

            rivals = [number for number, drop in enumerate(self._schedule, start=1) if drop.rival is not None]
            own = self.experiment, self.levels, self.drops, self.reason, rivals
            return _predict_units.document(*own) if self.levels else {}
        if self._several:
            from ._predict_softmax import predict_softmax

            return predict_softmax(self._task, self._model, scale=self.experiment.model.scale)
        from ._predict_linear import document

        return document(self.experiment, self._theory, self.drops, self.reason)

    def __str__(self) -> str:
        from . import _predict_linear, _predict_softmax

        if not self.document:
            return f"no prediction: {self.reason}"
        return (_predict_softmax if self._several else _predict_linear).tables(self.document)

    def course(self, until: float) -> tuple[Course | None, str]:
        """Return the course of the loss from the initial weights.

        **Arguments:**

        - `until`: the time t/τ to which it is wanted.

        **Returns:** the course, and a line if drops are missing; or None, and the line that says why there is none.

        **Example:**

        >>> course, reason = sw.Experiment(model="merged").predict().course(2000.0)
        >>> len(course.drops), reason
        (1, '')
        """
        import numpy as np

        from stepwell.theory import IntegrationFailed

        if self._several:
            return None, "times of several regressions are bounds, those of stepwell predict; nothing is drawn"
        if self._missing:
            return None, f"{self._missing}; nothing is drawn"
        drops, reason = self._drops
        if self._units and drops:
            from . import _predict_units

            return _predict_units.course(self._schedule, drops, np.linspace(0.0, until, _POINTS)), reason
        if reason and not drops:  # as of other optimizers than plain descent, and of weights that are too large
            return None, reason
        theory = self._theory
        try:
            made = theory.predictor.course(theory.task, theory.weights, np.linspace(0.0, until, _POINTS))
        except (IntegrationFailed, InvalidInput) as error:
            return None, str(error)
        return Course(made.times, made.loss, drops, theory.predictor.course_label), reason


def no_theory(experiment: Experiment) -> str:
    """What `Experiment.no_theory` returns."""
    task, model = experiment.task, experiment.model
    if experiment.theory == "units":
        from ._predict_units import no_units_theory

        return no_units_theory(experiment)
    context, divided = task.get("context"), experiment.normalization == "1/N"
    reasons = {
        f"the model {model.kind}": experiment.theory is None,
        "softmax attention on one regression": model.get("activation", "linear") != "linear",
        f"the task {task.kind}": task.kind in ("mixture", "multitask", "overlapping"),
        "several outputs": task.get("outputs", 1) != 1,
        "targets with noise, which adds its variance to every loss (leave out target_noise)": bool(
            task.get("target_noise") and task["noise"]
        ),
        "a mixture of context lengths whose attention is not divided by N": isinstance(context, tuple) and not divided,
        f"attention that is not divided by N on {task.kind}, which has no field context": not context and not divided,
    }
    known = next((f"there is no theory of {what}" for what, here in reasons.items() if here), "")
    if known or task.kind == "regression":
        return known
    from stepwell.theory import linear

    try:
        linear.levels(experiment.build_task())  # of a user's own, which may lack moments
    except InvalidInput as error:
        return str(error)
    return ""


def no_comparison(experiment: Experiment) -> str:
    """What `Experiment.no_comparison` returns."""
    model = experiment.model.kind
    if note_of(model, "reads") == "cubic":  # such a model does not know what its features are divided by
        return no_theory(experiment) or f"the drops of the {model} are those of {experiment.theory} attention"
    return no_theory(experiment)


def compare_run(trajectory: "xr.Dataset") -> "Comparison":
    """Return the drops of a run, predicted and measured: `analysis.compare` with its own task and sample.

    **Arguments:**

    - `trajectory`: what `Experiment.run` returned, or what `load` read.

    **Returns:** the `analysis.Comparison`, with a run for each seed that the trajectory has. `InvalidInput` is raised
    where there is no theory of the experiment.

    **Example:**

    >>> run = sw.Experiment(task={"dim": 2}, model={"scale": 0.01}).run(progress=False)
    >>> sw.experiments.compare_run(run).table["status"].tolist()
    ['measured', 'measured']
    """
    from stepwell.analysis import Comparison, compare

    from ._predict_linear import sample_of
    from ._predict_units import trained_on
    from ._run import experiment_and_seeds

    experiment, seeds = experiment_and_seeds(trajectory := with_runs(trajectory))
    if reason := no_comparison(experiment):
        raise InvalidInput(f"{reason}; nothing is compared")
    each = [experiment.replace(seed=seed) for seed in seeds or [experiment.seed]]
    alone = [trajectory.isel(run=[number]) for number in range(len(each))]
    made = []
    with Meter("comparing runs", len(each), shown=len(each) > 1) as meter:
        for run, one in zip(alone, each, strict=True):
            task = trained_on(one, one.build_task()) if one.theory == "units" else one.build_task()
            made.append(compare(run, task, sample=sample_of(one)))
            meter.update(len(made), f"{len(made)} of {len(each)}")
    remarks = dict.fromkeys(remark for one in made for remark in one.remarks)
    return Comparison(tuple(run for one in made for run in one.runs), made[0].stepped, tuple(remarks))
