"""What the theory predicts for each kind of linear model, behind one interface.

`theory` of a model's class names its predictor (`models.theory_of`), and `theory_weights` of the class are the keywords
that the predictor takes. So callers need not know which model it is.
"""

import abc
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell._util.errors import InvalidInput

from .._integrate import IntegrationFailed
from .._runge_kutta import SLOPES
from .._task_protocols import LinearTask, RegressionTask, require_gaussian
from .._types import PerMode, PerTime
from ._merged_course import drop_duration, half_drop_time, merged_course, merged_gain, merged_initial
from ._modes import modes
from ._race import too_large
from ._schedule import Drop, Drops, drop_schedule, predicted_path
from ._weights import merged_map, separate_map

Weights = Mapping[str, Float[np.ndarray, "..."]]


class PredictedDrop(NamedTuple):
    """The loss is halfway down at `time`, in units of τ, as `head` learns `component` (both from 0; None is all).

    The time is uncertain by `uncertainty`: of 100 at least some 95 are off by less.
    """

    time: float
    head: int | None
    component: int | None
    uncertainty: float


class PredictedCourse(NamedTuple):
    """A predicted loss, and its drops. The `times` are those asked for and, within drops, some more.

    Of separate heads also the `values` $v_i$ and the `maps` A with $\\hat y = \\beta^\\top A x_q$ on the way.
    """

    times: PerTime
    loss: PerTime
    drops: Drops[PredictedDrop]
    values: Float[np.ndarray, "time head"] | None = None
    maps: Float[np.ndarray, "time dim dim"] | None = None


class AbstractPredictor(abc.ABC):
    """Predictions for one kind of model. `course_label` is how a plot names its course."""

    course_label: ClassVar[str]

    @abc.abstractmethod
    def plateaus(self, most: int, pairs: int) -> list[int]:
        """Return the number of components learned on each plateau, up to `most`, by `pairs` of key and query in all."""

    @abc.abstractmethod
    def drops(self, task: LinearTask, weights: Weights, *, until: float = np.inf) -> Drops[PredictedDrop]:
        """Return the drops of the loss from initial `weights` up to `until`, with the reason if some are missing."""

    @abc.abstractmethod
    def drops_of_runs(self, task: LinearTask, weights: Weights) -> list[Drops[PredictedDrop]]:
        """Return the drops of many runs; the first axis of all `weights` is the run."""

    @abc.abstractmethod
    def course(self, task: LinearTask, weights: Weights, times: PerTime) -> PredictedCourse:
        """Return the predicted loss at `times`, in units of τ, from initial `weights`."""

    @abc.abstractmethod
    def effective_map(self, weights: Weights) -> Float[np.ndarray, "*lead dim dim"]:
        r"""Return $A$ with $\hat y = \beta^\top A x_q$; leading axes are allowed."""

    @abc.abstractmethod
    def working_bytes(self, heads: int, pairs: int, dim: int) -> int:
        """Return how many bytes `drops` holds in memory for `heads` of `pairs` each, in dimension `dim`."""


class _Merged(AbstractPredictor):
    """All heads act as one, which learns all components at once."""

    course_label = "theory: course from the initial weights"

    def plateaus(self, most: int, pairs: int) -> list[int]:
        return [0, most]

    def drops(self, task: LinearTask, weights: Weights, *, until: float = np.inf) -> Drops[PredictedDrop]:
        try:
            task = require_gaussian(task)
            value, key_query = merged_initial(task, **weights)
            eigenmodes = modes(task)
        except InvalidInput as error:
            return Drops(reason=str(error))
        with np.errstate(over="ignore", invalid="ignore"):
            excess, gains = -merged_gain(eigenmodes, value, key_query), float(eigenmodes.gains.sum())
        if not excess <= gains:
            return Drops(reason=too_large("the part of them that grows raises", excess, gains))
        try:
            time = half_drop_time(task, value, key_query) if value > 0 else np.inf
        except IntegrationFailed as error:
            return Drops(reason=str(error))
        if np.isfinite(time):
            off = _merged_uncertainty(task, weights, value, key_query, time)
            return _certain(Drops([PredictedDrop(time, None, None, off)] if time <= until else []))
        return Drops(reason="from these weights the drop does not come")

    def drops_of_runs(self, task: LinearTask, weights: Weights) -> list[Drops[PredictedDrop]]:
        runs = range(len(weights["values"]))
        return [self.drops(task, {name: weight[run] for name, weight in weights.items()}) for run in runs]

    def course(self, task: LinearTask, weights: Weights, times: PerTime) -> PredictedCourse:
        task = require_gaussian(task)
        loss = merged_course(task, times, *merged_initial(task, **weights)).loss
        return PredictedCourse(times, loss, self.drops(task, weights, until=float(times[-1])))

    def effective_map(self, weights: Weights) -> Float[np.ndarray, "*lead dim dim"]:
        return merged_map(**weights)

    def working_bytes(self, heads: int, pairs: int, dim: int) -> int:
        return 8 * heads * (1 + 2 * pairs * dim)


class _Separate(AbstractPredictor):
    """Heads learn one component after another, as many as they have pairs of key and query."""

    course_label = "theory: course from the initial weights"

    def plateaus(self, most: int, pairs: int) -> list[int]:
        return list(range(min(most, pairs) + 1))

    def drops(self, task: LinearTask, weights: Weights, *, until: float = np.inf) -> Drops[PredictedDrop]:
        return _as_predicted(drop_schedule(task, weights["values"], weights["keys"], weights["queries"], until=until))

    def drops_of_runs(self, task: LinearTask, weights: Weights) -> list[Drops[PredictedDrop]]:
        schedules = drop_schedule(task, weights["values"], weights["keys"], weights["queries"])
        return [_as_predicted(drops) for drops in schedules]

    def course(self, task: LinearTask, weights: Weights, times: PerTime) -> PredictedCourse:
        every = drop_schedule(task, weights["values"], weights["keys"], weights["queries"], until=float(times[-1]))
        certain = _as_predicted(every)
        times, loss, values, maps = predicted_path(task, weights["values"], weights["keys"], weights["queries"], times)
        if missing := every[len(certain) :]:  # where the plateau ends is not known
            known = [missing[0].time * (1 - MOST_UNCERTAIN), *(drop.time for drop in every[: len(certain)][-1:])]
            for part in (loss, values, maps):
                part[times > max(known)] = np.nan
        return PredictedCourse(times, loss, certain, values, maps)

    def effective_map(self, weights: Weights) -> Float[np.ndarray, "*lead dim dim"]:
        return separate_map(**weights)

    def working_bytes(self, heads: int, pairs: int, dim: int) -> int:
        # The slopes of a step and what they are made of; and where steps are implicit, SciPy keeps the banded Jacobian.
        width = 1 + 2 * pairs * dim
        return 8 * heads * width * (3 * width + 3 * SLOPES)


def _as_predicted(drops: Drops[Drop]) -> Drops[PredictedDrop]:
    every = (PredictedDrop(drop.time, drop.head, drop.component, drop.uncertainty) for drop in drops)
    return _certain(Drops(every, drops.reason))


def _certain(drops: Drops[PredictedDrop]) -> Drops[PredictedDrop]:
    """The drops before the first whose time means nothing."""
    for number, drop in enumerate(drops):
        if drop.uncertainty > MOST_UNCERTAIN * drop.time:
            share = drop.uncertainty / drop.time if drop.time > 0 else np.inf
            share = f"{share:.0%}" if np.isfinite(share) else "all of it"
            return Drops(
                drops[:number],
                f"the time of drop {number + 1} would be uncertain by {share}: the initial weights are not small, or "
                "heads or gains are so nearly equal that little decides between them; try a smaller scale or another "
                "seed",
            )
    return drops


MOST_UNCERTAIN = 0.5
"""Times that are uncertain by a larger part of themselves are not given."""


def _merged_uncertainty(task: RegressionTask, weights: Weights, value: float, key_query: PerMode, time: float) -> float:
    r"""How far the time of merged attention may be off, in units of τ.

    Heads are driven in proportion to what grows of them at first, $\hat\mu_h = \mu_h/\|\mu\|$ of `merged_initial`. To
    first order the map has only their mixture, $v(0) = \sum_h\hat\mu_hv_h$, $U(0) = \sum_h\hat\mu_hU_h$, and the loss
    only what that has along the modes, $u_d(0) = e_d^\top U(0)e_d$: the scalar equations from there have what the
    predicted time leaves out at first order, and twice that counts. At second order there is the rest of the initial
    weights, $x^2 = \sum_h(v_h^2 + \|U_h\|_F^2)/\|A\|_F$ of the map A in the end, and so of the `drop_duration`.
    """
    eigenmodes = modes(task)
    values, key_queries = weights["values"], weights["key_queries"]
    along = np.einsum("id,hij,jd->hd", eigenmodes.directions, key_queries, eigenmodes.directions)
    growing = value * values + along @ key_query  # in proportion to μ: both are ‖μ‖ times a unit vector
    mixture = growing / np.linalg.norm(growing)
    try:
        first = abs(half_drop_time(task, float(mixture @ values), mixture @ along) - time)
    except IntegrationFailed:
        return np.inf
    second = (np.sum(values**2) + np.sum(key_queries**2)) / np.linalg.norm(eigenmodes.ends)
    return float(2 * first + second * drop_duration(eigenmodes, value, key_query))


PREDICTORS: dict[str, AbstractPredictor] = {"merged": _Merged(), "separate": _Separate()}
"""Predictors by the name that `theory` has in the declaration of a model."""
