"""How weights move, as an experiment says it: flow, descent, and descent on new sequences."""

import abc
import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from stepwell._util.errors import InvalidInput

from ._times import TimeScale

if TYPE_CHECKING:
    import xarray as xr

FINE = 1024
"""Steps up to which the loss of every one is measured; of longer runs that of as many, evenly spread."""


class Online(NamedTuple):
    """The loss over sequences that are new at every step: what they are drawn from, how many, and by which key."""

    task: Any
    batch_size: int
    key: Any


class Recording(NamedTuple):
    """What is kept of a run: at how many points the loss, how these are spaced, at how many of them the weights."""

    points: int
    spacing: Literal["steps", "linear", "log"]
    snapshots: int

    def steps(self, last: int) -> np.ndarray:
        """The steps at which losses are kept, from the first to the last."""
        if self.spacing == "linear":
            return np.unique(np.linspace(0, last, self.points).round().astype(np.int64))
        between = np.geomspace(1, last, self.points - 1)[:-1] if self.points > 2 else []
        return np.unique(np.concatenate([[0], np.round(between), [last]]).astype(np.int64))

    def times(self, end: float) -> np.ndarray:
        """The times at which the loss of a flow is kept."""
        if self.spacing == "linear":
            return np.linspace(0.0, end, self.points)
        return np.concatenate([[0.0], np.geomspace(1e-4 * end, end, self.points - 1)[:-1], [end]])

    def places(self, count: int) -> np.ndarray:
        """At which of `count` points weights are kept."""
        return np.unique(np.linspace(0, count - 1, min(self.snapshots, count)).round().astype(int))


class AbstractTraining(abc.ABC):
    """A kind of training: what a builder of the section `training` returns."""

    @abc.abstractmethod
    def run(self, model: Any, objective: Any, recording: Recording, time: TimeScale, **options: Any) -> "xr.Dataset":
        """Train a model or an ensemble, and return the trajectory, in the paper's time.

        `options` are `observe`, `progress`, `configuration` and `checkpoint`, as those of `descend` and `flow`.
        """


@dataclasses.dataclass(frozen=True)
class Flow(AbstractTraining):
    """Gradient flow until a time, in the paper's unit, or until it has converged."""

    until: float | Literal["converged"]
    tolerance: float

    def run(self, model: Any, objective: Any, recording: Recording, time: TimeScale, **options: Any) -> "xr.Dataset":
        from stepwell.dynamics import flow

        until: float | Literal["converged"] = "converged"
        save: Any = recording.points
        if self.until != "converged":
            until = self.until / time.factor
            save = recording.points if recording.spacing == "steps" else recording.times(until)
        options |= {"spacing": recording.spacing, "rtol": self.tolerance, "time_factor": time.factor}
        made = flow(model, objective, until=until, save=save, **options)
        return in_paper_time(with_snapshots(made, recording), time)


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

    def run(self, model: Any, objective: Any, recording: Recording, time: TimeScale, **options: Any) -> "xr.Dataset":
        from stepwell.dynamics import descend, online

        rule, remembered = self.rule(model)
        kept = recording.steps(self.steps)
        record: Any = 1 if kept.size == self.steps + 1 else kept
        options["configuration"] = {**(options.get("configuration") or {}), **remembered}
        common = {"steps": self.steps, "record": record, "snapshots": kept[recording.places(kept.size)], **options}
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


def with_snapshots(run: "xr.Dataset", recording: Recording) -> "xr.Dataset":
    """A flow with its weights at fewer points than its losses, if fewer are asked for."""
    if recording.snapshots >= run.sizes["time"]:
        return run
    weights = [name for name, values in run.data_vars.items() if "time" in values.dims and name not in _curves(run)]
    places = recording.places(run.sizes["time"])
    moved = run[weights].isel(time=places).rename(time="snapshot")
    return run.drop_vars(weights).assign_coords(snapshot=moved["snapshot"]).assign(moved.data_vars)


def _curves(run: "xr.Dataset") -> set[str]:
    import json

    return {"loss", *json.loads(run.attrs["configuration"])["observed"]}


def require_spacing(spacing: str) -> None:
    """Refuse times that differ from run to run, where many are recorded together."""
    if spacing == "steps":
        raise InvalidInput(
            "spacing is steps, those of the solver, which differ from run to run; many runs are recorded at the same "
            "times, so give record spacing linear or log"
        )
