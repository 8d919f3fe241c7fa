"""How weights move, as an experiment says it: flow, descent, descent on new sequences; and the paper's time of each."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stepwell._util import paper_time

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

    @classmethod
    def of(cls, task: Mapping[str, Any], model: Any) -> "TimeScale":
        """Return the time scale of runs, from the sections of their task and model.

        Linear attention that is not divided by N is rescaled to the one that is. Where that cannot be done (context
        lengths vary, or it is softmax attention) time is that of the weights as they are trained.
        """
        factors = note_of(model.kind, "factors", _FACTORS.get(note_of(model.kind, "theory", "")))
        if model.get("activation", "linear") != "linear" or factors is None:
            return cls(1.0, paper_time.TIME_UNIT)
        normalization, context = model.get("normalization") or "1/N", task.get("context")
        if normalization == "1/N":
            return cls(1.0, paper_time.PAPER_UNIT)
        if not isinstance(context, int):
            return cls(1.0, paper_time.TIME_UNIT)
        factor = paper_time.time_factor(normalization, "1/N", length=context, factors=factors)
        return cls(factor, paper_time.PAPER_UNIT)

    def of_steps(self, steps: Any, rate: Any) -> Any:
        """Return the time after so many steps of gradient descent."""
        return self.factor * paper_time.flow_time(steps, rate)


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
        """Return the rate or the optimizer, as keywords of `descend`, and what the trajectory records of it."""
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
        times = time.factor * run["snapshot"].values
        run = run.assign_coords(snapshot=("snapshot", times, {"units": time.unit}))
    return run
