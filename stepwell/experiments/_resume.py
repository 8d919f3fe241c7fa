"""A run from its initial weights, from a checkpoint, or from a stored trajectory of fewer steps."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import AnotherRun, InvalidInput
from stepwell._util.outcomes import return_or_raise
from stepwell.dynamics import Checkpoint, Record, descend
from stepwell.trajectory import model_at

from ._experiment import Experiment
from ._run import observables, remembering, train
from ._training import Descent, in_paper_time


@checked
def resume(
    experiment: Experiment,
    trajectory: xr.Dataset,
    *,
    seeds: Sequence[int] | None,
    progress: bool,
    checkpoint: Checkpoint | None,
    throw: bool,
) -> xr.Dataset:
    """What `Experiment.resume` returns."""
    if checkpoint is not None and checkpoint.resume and checkpoint.file.exists():
        try:
            return train(experiment, seeds=seeds, progress=progress, checkpoint=checkpoint, throw=throw)
        except AnotherRun:  # it may be of a run that continued the stored one
            pass
    training = experiment.build_training()
    if (
        seeds is not None
        or not isinstance(training, Descent)
        or not training.plain
        or experiment.objective.kind == "online"
        or experiment.build_record().steps(training.steps).size <= training.steps
        or not np.array_equal(trajectory["step"], np.arange(trajectory.sizes["step"]))
    ):
        raise InvalidInput(
            "only gradient descent of one seed at a constant rate on fixed sequences, recorded at every step, is "
            "continued from its trajectory; other runs are by their checkpoint, if interrupted; leave out --resume"
        )
    start = int(trajectory["snapshot"][-1])
    try:
        rest = _rest(experiment, training, trajectory, start, checkpoint, progress)
    except AnotherRun:
        if trajectory.attrs["outcome"] != "interrupted" or checkpoint is None:
            raise
        # Ctrl-C saved both, and this run has another end than that one.
        rest = _rest(experiment, training, trajectory, start, dataclasses.replace(checkpoint, resume=False), progress)
    return return_or_raise(_joined(trajectory, rest, start, _grid(experiment, training)), throw)


def _grid(experiment: Experiment, training: Descent) -> np.ndarray:
    """The steps of the snapshots of the whole run."""
    record = experiment.build_record()
    steps = record.steps(training.steps)
    return steps[record.places(steps)]


def _rest(
    experiment: Experiment,
    training: Descent,
    stored: xr.Dataset,
    start: int,
    checkpoint: Checkpoint | None,
    progress: bool,
) -> xr.Dataset:
    """The steps from `start` on, numbered from the beginning of the run."""
    grid, (task, template, objective) = _grid(experiment, training), experiment.build()
    rule, remembered = training.rule(template)
    record = Record(snapshots=grid[grid > start] - start, observe=observables(experiment, task, template) or None)
    options: Any = {"configuration": {"task": task, **remembered}, "checkpoint": checkpoint, "progress": progress}
    options |= {**rule, "steps": training.steps - start, "first_step": start, "record": record, "throw": False}
    made = descend(model_at(stored, template), objective, **options)
    return remembering(in_paper_time(made, experiment.time_scale), experiment)


def _joined(first: xr.Dataset, second: xr.Dataset, start: int, grid: np.ndarray) -> xr.Dataset:
    """Both parts as one, as if the run had never stopped at `start`."""
    joined: dict[str, Any] = {}
    last = int(second["snapshot"][-1])
    keep = [step != start or step == last or step in grid for step in second["snapshot"].values]
    for axis, tail in (("step", second), ("snapshot", second.isel(snapshot=np.flatnonzero(keep)))):
        names = [str(name) for name, values in second.data_vars.items() if axis in values.dims]
        parts = [first[names].isel({axis: np.flatnonzero(first[axis].values < start)}), tail[names]]
        joined[axis] = xr.concat(parts, axis, data_vars="all", coords="minimal", compat="override", join="override")
    made = joined["step"].assign_coords(joined["snapshot"].coords).assign(joined["snapshot"].data_vars)
    configuration = json.loads(first.attrs["configuration"])
    configuration["steps"] = start + json.loads(second.attrs["configuration"])["steps"]
    made.attrs = {**second.attrs, "configuration": json.dumps(configuration)}
    return made
