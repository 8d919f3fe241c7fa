"""How weights move, as an experiment says it: flow, descent, descent on new sequences; and the paper's time of each."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stepwell._util import paper_time
from stepwell._util.errors import InvalidInput

from ._kind import note_of

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.dynamics import Record

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


FINE = 1024
"""Steps up to which the loss of every one is measured; of longer runs that of as many, evenly spread."""


class Online(NamedTuple):
    """The loss over sequences that are new at every step: what they are drawn from, how many, and by which key."""

    task: Any
    batch_size: int
    key: Any


class AbstractTraining(abc.ABC):
    """A kind of training: what a builder of the section `training` returns."""

    @abc.abstractmethod
    def run(self, model: Any, objective: Any, record: "Record", time: TimeScale, **options: Any) -> "xr.Dataset":
        """Train a model or an ensemble, and return the trajectory, in the paper's time.

        `options` are `progress`, `configuration`, `checkpoint` and `throw`, as those of `descend` and `flow`.
        """


@dataclasses.dataclass(frozen=True)
class Flow(AbstractTraining):
    """Gradient flow until a time, in the paper's unit, or until it has converged."""

    until: float | Literal["converged"]
    tolerance: float

    def run(self, model: Any, objective: Any, record: "Record", time: TimeScale, **options: Any) -> "xr.Dataset":
        from stepwell.dynamics import flow

        until: float | Literal["converged"] = "converged"
        if self.until != "converged":
            until = self.until / time.factor
            if record.spacing != "steps":
                record = dataclasses.replace(record, points=record.times(until), spacing=None)
        options |= {"rtol": self.tolerance, "time_factor": time.factor}
        return in_paper_time(flow(model, objective, until=until, record=record, **options), time)


@dataclasses.dataclass(frozen=True)
class Descent(AbstractTraining):
    """Gradient descent by a number of steps."""

    rate: float
    steps: int
    optimizer: str = "sgd"
    schedule: str = "constant"

    @property
    def plain(self) -> bool:
        """Whether it is gradient descent at a constant rate."""
        return (self.optimizer, self.schedule) == ("sgd", "constant")

    def rule(self, model: Any, rates: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The rate or the optimizer, as keywords of `descend`; and what the trajectory remembers of it."""
        from stepwell.dynamics import named_optimizer

        if self.plain:
            return {"rate": self.rate if rates is None else rates}, {}
        named = named_optimizer(self.optimizer, self.schedule, rate=self.rate, steps=self.steps, model=model)
        return {"optimizer": named.optimizer}, {"optimizer": named.specification, "rate": self.rate}

    def run(self, model: Any, objective: Any, record: "Record", time: TimeScale, **options: Any) -> "xr.Dataset":
        from stepwell.dynamics import descend, online

        rule, remembered = self.rule(model)
        options["configuration"] = {**(options.get("configuration") or {}), **remembered}
        common = {"steps": self.steps, "record": record, **options}
        if isinstance(objective, Online):
            made = online(model, objective.task, batch_size=objective.batch_size, key=objective.key, **rule, **common)
        else:
            made = descend(model, objective, **rule, **common)
        return in_paper_time(made, time)


_TIMES = ("time", "snapshot_time")


def in_paper_time(run: "xr.Dataset", time: TimeScale) -> "xr.Dataset":
    """A trajectory with its times in the paper's unit."""
    if time.factor == 1.0 and all(run[name].attrs.get("units") == time.unit for name in _TIMES if name in run.coords):
        return run  # as it is: assigning coordinates takes a tenth of a short run
    for name in _TIMES:
        if name in run.coords:
            values = run[name]
            run = run.assign_coords({name: (values.dims, time.factor * values.values, {"units": time.unit})})
    if "snapshot" in run.coords and "step" not in run.coords:
        values = run["snapshot"].values
        run = run.assign_coords(snapshot=("snapshot", time.factor * values, {"units": time.unit}))
    return run


def require_spacing(spacing: str) -> None:
    """Refuse times that differ from run to run, where many are recorded together."""
    if spacing == "steps":
        raise InvalidInput(
            "spacing is steps, those of the solver, which differ from run to run; many runs are recorded at the same "
            "times, so give record spacing linear or log"
        )
