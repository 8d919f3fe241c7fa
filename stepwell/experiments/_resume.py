"""A run from its initial weights, from a checkpoint, or from a stored trajectory of fewer steps."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from stepwell._util.errors import AnotherRun, InvalidInput
from stepwell._util.outcomes import return_or_raise
from stepwell.dynamics import Checkpoint, Record, descend
from stepwell.trajectory import model_at

from ._build import build_model, build_objective, build_task, keys_of, observables
from ._experiment import Experiment, training_of
from ._run import record_of, remembering, run, time_of
from ._training import Descent, in_paper_time


def is_beginning(stored: Experiment, asked: Experiment) -> bool:
    """Whether a run of one experiment is the beginning of a run of another, or the same: only steps may be more."""
    if stored == asked:
        return True
    if not stored.training.kind == asked.training.kind == "descent" or stored.training.steps > asked.training.steps:
        return False
    return asked.replace(training={"steps": stored.training.steps}) == stored


def last_step(trajectory: xr.Dataset) -> int:
    """The step of the last snapshot, from which a descent can be continued; of a flow 0."""
    return int(trajectory["snapshot"][-1]) if "step" in trajectory.dims else 0


def resume(
    experiment: Experiment,
    trajectory: xr.Dataset | None = None,
    *,
    seeds: Sequence[int] | None = None,
    checkpoint: Checkpoint | None = None,
    progress: bool = True,
    throw: bool = True,
) -> xr.Dataset:
    """Train an experiment, from its initial weights or from where a stored run ended.

    A run that is continued by its checkpoint is bit for bit the run that was not interrupted, and so are the losses of
    a descent that is continued from its trajectory.

    **Arguments:**

    - `experiment`: the experiment.
    - `trajectory`: a run of it that was interrupted, or of the same with fewer steps. None starts anew.
    - `seeds`: several seeds, trained as one program.
    - `checkpoint`: where the state of the run is saved now and then. If it says so, a run that was killed or
      interrupted continues from there.
    - `progress`: whether to show a progress bar.
    - `throw`: whether a run that does not come to its end raises, or its trajectory is returned; as in `run`.

    **Returns:** the whole trajectory, as `Experiment.run` returns it.

    **Example:**

    >>> import stepwell as sw
    >>> short = sw.Experiment(task={"dim": 2}, training={"kind": "descent", "steps": 20})
    >>> long = short.replace(training={"steps": 50})
    >>> made = sw.experiments.resume(long, short.run(progress=False), progress=False)
    >>> bool((made["loss"] == long.run(progress=False)["loss"]).all())
    True
    """

    def whole() -> xr.Dataset:
        return run(experiment, seeds=seeds, progress=progress, checkpoint=checkpoint, throw=throw)

    begun = checkpoint is not None and checkpoint.resume and checkpoint.file.exists()
    if trajectory is None:
        return whole()
    if begun:
        try:
            return whole()
        except AnotherRun:  # it may be of a run that continued the stored one
            pass
    training = training_of(experiment)
    if (
        seeds is not None
        or not isinstance(training, Descent)
        or not training.plain
        or experiment.objective.kind == "online"
        or record_of(experiment).steps(training.steps).size <= training.steps
        or not np.array_equal(trajectory["step"], np.arange(trajectory.sizes["step"]))
    ):
        raise InvalidInput(
            "only gradient descent of one seed at a constant rate on fixed sequences, recorded at every step, is "
            "continued from its trajectory; other runs are by their checkpoint, if interrupted; leave out --resume"
        )
    start = last_step(trajectory)
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
    record = record_of(experiment)
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
    keys, grid = keys_of(experiment.seed), _grid(experiment, training)
    task = build_task(experiment, keys)
    template = build_model(experiment, task, keys)
    rule, remembered = training.rule(template)
    made = descend(
        model_at(stored, template),
        build_objective(experiment, task, template, keys),
        **rule,
        steps=training.steps - start,
        first_step=start,
        record=Record(snapshots=grid[grid > start] - start, observe=observables(experiment, task, keys) or None),
        progress=progress,
        configuration={"task": task, **remembered},
        checkpoint=checkpoint,
        throw=False,
    )
    return remembering(in_paper_time(made, time_of(experiment)), experiment)


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
