"""`run.stepwell`: what one does most with a trajectory, as methods of it."""

import contextlib
import json
import sys
from typing import Any

import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.runs import with_runs
from stepwell.models import AbstractModel

from ._build import model_at


@xr.register_dataset_accessor("stepwell")
class Accessor:
    """The methods of a trajectory; those of the package do the work, and say more.

    The package is reached by its top level, which imports a room when it is used: this room may not import those.
    """

    def __init__(self, trajectory: xr.Dataset):
        self._trajectory = with_runs(trajectory)

    def plot(self, task: Any = None, **options: Any) -> Any:
        """Return the loss with the theory of a `task`, by default of the experiment: `stepwell.draw_staircase`."""
        if task is None and "experiment" in self._trajectory.attrs:
            with contextlib.suppress(InvalidInput):  # where there is no theory, the loss is drawn alone
                task = _package().experiments.compare_run(self._trajectory)
        return _package().draw_staircase(self._trajectory, task, **options)

    def weights(self, **options: Any) -> Any:
        """Return the size of every weight: `stepwell.draw_weights`."""
        return _package().draw_weights(self._trajectory, **options)

    def map(self, task: Any = None, **options: Any) -> Any:
        """Return the effective map at several points: `stepwell.draw_map`."""
        return _package().draw_map(self._trajectory, task, **options)

    def animate(self, task: Any = None, **options: Any) -> Any:
        """Return an animation of the run: `stepwell.animate`."""
        return _package().animate(self._trajectory, task, **options)

    def compare(self, task: Any = None, **options: Any) -> Any:
        """Return the drops, predicted and measured: `stepwell.compare`, by default with the experiment's task."""
        if task is None:
            return _package().experiments.compare_run(self._trajectory, **options)
        return _package().compare(self._trajectory, task, **options)

    @checked
    def drops(self, task: Any = None, *, run: int = 0) -> tuple[Any, ...]:
        """Return the drops of the loss of one run: between the levels of a task's theory, else as they are detected."""
        axis = "step" if "step" in self._trajectory.dims else "time"
        points, loss = self._trajectory[axis].values.astype(float), self._trajectory["loss"].isel(run=run).values
        analysis = _package().analysis
        if task is None:
            return analysis.staircase(points, loss).drops
        return analysis.level_drops(points, loss, _package().levels(task))

    @checked
    def model(self, at: float | None = None, *, run: int = 0) -> AbstractModel:
        """Return the model at the recorded point nearest to `at`, a step or a time; by default the last."""
        return model_at(self._trajectory, run=run, at=at)

    def __repr__(self) -> str:
        run, configuration = self._trajectory, json.loads(self._trajectory.attrs.get("configuration", "{}"))
        model = configuration.get("model") or {}
        axis = "step" if "step" in run.dims else "time"
        count = run.sizes.get("run", 1)
        what = (model.get("stacked") or model).get("class", "a model")
        loss = run["loss"].values[:, [0, -1]].mean(axis=0)
        runs = "one run" if count == 1 else f"{count} runs"
        objective = (configuration.get("objective") or configuration.get("task") or {}).get("class", "")
        made = f"{configuration.get('dynamics', 'training')}{f' on {objective}' if objective else ''}"
        last = f"{'step' if axis == 'step' else 't/tau ='} {run[axis].values[-1]:.6g}"
        ends = f"loss {loss[0]:.4g} to {loss[1]:.4g}, {run.attrs.get('outcome', '')}"
        return f"{runs} of {what} by {made}: {run.sizes[axis]} recorded points to {last}, {ends}"


def _package() -> Any:
    return sys.modules["stepwell"]
