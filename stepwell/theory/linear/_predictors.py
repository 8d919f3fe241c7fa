"""What the theory predicts for each kind of linear model, behind one interface.

`theory` of a model's class names its predictor (`models.theory_of`), and `theory_weights` of the class are the keywords
that the predictor takes. So callers need not know which model it is.
"""

import abc
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from .._integrate import IntegrationFailed
from .._runge_kutta import SLOPES
from .._task_protocols import LinearTask, require_gaussian
from ._merged_course import half_drop_time, merged_course, merged_gain, merged_start
from ._modes import modes
from ._race import too_large
from ._schedule import Drop, Drops, drop_schedule, predicted_staircase
from ._weights import merged_map, separate_map

Weights = Mapping[str, Float[np.ndarray, "..."]]


class PredictedDrop(NamedTuple):
    """The loss is halfway down at `time`, in units of τ, as `head` learns `component` (both from 0; None is all)."""

    time: float
    head: int | None
    component: int | None


class PredictedCourse(NamedTuple):
    """A predicted loss, and its drops. The `times` are those asked for and, of a staircase, its edges."""

    times: Float[np.ndarray, " time"]
    loss: Float[np.ndarray, " time"]
    drops: Drops[PredictedDrop]


class AbstractPredictor(abc.ABC):
    """Predictions for one kind of model. `course_label` is how a plot names its course."""

    course_label: ClassVar[str]

    @abc.abstractmethod
    def plateaus(self, most: int, pairs: int) -> list[int]:
        """How many components are learned on each plateau: `most` at the most, by `pairs` of key and query in all."""

    @abc.abstractmethod
    def drops(self, task: LinearTask, weights: Weights, *, until: float = np.inf) -> Drops[PredictedDrop]:
        """The drops of the loss from initial `weights`, up to time `until`; with the reason if some are missing."""

    @abc.abstractmethod
    def drops_of_runs(self, task: LinearTask, weights: Weights) -> list[Drops[PredictedDrop]]:
        """The drops of many runs; the first axis of all `weights` is the run."""

    @abc.abstractmethod
    def course(self, task: LinearTask, weights: Weights, times: Float[np.ndarray, " time"]) -> PredictedCourse:
        """The predicted loss at `times`, in units of τ, from initial `weights`."""

    @abc.abstractmethod
    def effective_map(self, weights: Weights) -> Float[np.ndarray, "*lead dim dim"]:
        r"""$A$ with $\hat y = \beta^\top A x_q$; leading axes are allowed."""

    @abc.abstractmethod
    def working_bytes(self, heads: int, pairs: int, dim: int) -> int:
        """How many bytes `drops` holds in memory for `heads` of `pairs` each, in dimension `dim`."""


class _Merged(AbstractPredictor):
    """All heads act as one, which learns all components at once."""

    course_label = "theory: course from the initial weights"

    def plateaus(self, most: int, pairs: int) -> list[int]:
        return [0, most]

    def drops(self, task: LinearTask, weights: Weights, *, until: float = np.inf) -> Drops[PredictedDrop]:
        task = require_gaussian(task)
        value, key_query = merged_start(task, **weights)
        eigenmodes = modes(task)
        with np.errstate(over="ignore", invalid="ignore"):
            excess, gains = -merged_gain(eigenmodes, value, key_query), float(eigenmodes.gains.sum())
        if not excess <= gains:
            return Drops(reason=too_large(excess, gains))
        try:
            time = half_drop_time(task, value, key_query) if value > 0 else np.inf
        except IntegrationFailed as error:
            return Drops(reason=str(error))
        if np.isfinite(time):
            return Drops([PredictedDrop(time, None, None)] if time <= until else [])
        return Drops(reason="from these weights the drop does not come")

    def drops_of_runs(self, task: LinearTask, weights: Weights) -> list[Drops[PredictedDrop]]:
        runs = range(len(weights["values"]))
        return [self.drops(task, {name: weight[run] for name, weight in weights.items()}) for run in runs]

    def course(self, task: LinearTask, weights: Weights, times: Float[np.ndarray, " time"]) -> PredictedCourse:
        task = require_gaussian(task)
        loss = merged_course(task, times, *merged_start(task, **weights)).loss
        return PredictedCourse(times, loss, self.drops(task, weights, until=float(times[-1])))

    def effective_map(self, weights: Weights) -> Float[np.ndarray, "*lead dim dim"]:
        return merged_map(**weights)

    def working_bytes(self, heads: int, pairs: int, dim: int) -> int:
        return 8 * heads * (1 + 2 * pairs * dim)


class _Separate(AbstractPredictor):
    """Heads learn one component after another, as many as they have pairs of key and query."""

    course_label = "theory: drops from the initial weights"

    def plateaus(self, most: int, pairs: int) -> list[int]:
        return list(range(min(most, pairs) + 1))

    def drops(self, task: LinearTask, weights: Weights, *, until: float = np.inf) -> Drops[PredictedDrop]:
        return _as_predicted(drop_schedule(task, **weights, until=until))

    def drops_of_runs(self, task: LinearTask, weights: Weights) -> list[Drops[PredictedDrop]]:
        schedules = drop_schedule(task, weights["values"], weights["keys"], weights["queries"])
        return [_as_predicted(drops) for drops in schedules]

    def course(self, task: LinearTask, weights: Weights, times: Float[np.ndarray, " time"]) -> PredictedCourse:
        drops = drop_schedule(task, **weights, until=float(times[-1]))
        edges = np.array([edge for drop in drops for edge in (drop.time * (1 - 1e-12), drop.time)])
        times = np.union1d(times, edges)
        loss = predicted_staircase(task, drops, times)
        return PredictedCourse(times, loss, _as_predicted(drops))

    def effective_map(self, weights: Weights) -> Float[np.ndarray, "*lead dim dim"]:
        return separate_map(**weights)

    def working_bytes(self, heads: int, pairs: int, dim: int) -> int:
        # The slopes of a step and what they are made of; and where steps are implicit, SciPy keeps the banded Jacobian.
        width = 1 + 2 * pairs * dim
        return 8 * heads * width * (3 * width + 3 * SLOPES)


def _as_predicted(drops: Drops[Drop]) -> Drops[PredictedDrop]:
    return Drops((PredictedDrop(drop.time, drop.head, drop.component) for drop in drops), drops.reason)


PREDICTORS: dict[str, AbstractPredictor] = {"merged": _Merged(), "separate": _Separate()}
"""Predictors by the name that `theory` has in the declaration of a model."""
