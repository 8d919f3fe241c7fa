"""The paper's time for an experiment: from steps and rates, and from the time of the weights that are trained."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stepwell._util import paper_time

from ._kind import note_of

_FACTORS = {"separate": 3, "merged": 2}
"""Weights whose product makes a prediction, by the theory of the model."""


class TimeScale(NamedTuple):
    """How times of a run become the paper's t/τ."""

    factor: float
    """The paper's time for one unit of the flow time of the weights as they are trained."""
    unit: str
    """What the time is, as files say it."""

    def of_steps(self, steps: Any, rate: Any) -> Any:
        """The time after so many steps of gradient descent."""
        return self.factor * paper_time.flow_time(steps, rate)


def time_scale(task: Mapping[str, Any], model: Any) -> TimeScale:
    """Return the time scale of a run, from the sections of its task and model.

    Linear attention that is not divided by N is rescaled to the one that is. Where that cannot be done, because context
    lengths vary or it is softmax attention, time is that of the weights as they are trained.

    **Arguments:**

    - `task`: the section of the task.
    - `model`: the section of the model.

    **Returns:** the `TimeScale`: the factor and the unit.

    **Example:**

    >>> import stepwell as sw
    >>> experiment = sw.Experiment(task={"context": 8}, model={"normalization": "none"})
    >>> round(sw.experiments.time_scale(experiment.task, experiment.model).factor, 9)  # 8^(2/3)
    4.0
    """
    factors = note_of(model.kind, "factors", _FACTORS.get(note_of(model.kind, "theory", "")))
    normalization = model.get("normalization") or "1/N"
    if model.get("activation", "linear") != "linear" or factors is None:
        return TimeScale(1.0, paper_time.TIME_UNIT)
    if normalization == "1/N":
        return TimeScale(1.0, paper_time.PAPER_UNIT)
    context = task.get("context")
    if not isinstance(context, int):
        return TimeScale(1.0, paper_time.TIME_UNIT)
    return TimeScale(
        paper_time.time_factor(normalization, "1/N", length=context, factors=factors), paper_time.PAPER_UNIT
    )
