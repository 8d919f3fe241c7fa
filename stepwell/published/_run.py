"""One training run, from its start or resumed from a stored trajectory."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from stepwell._errors import AnotherRun, InvalidInput
from stepwell.dynamics import Checkpoint, Ensemble, descend, flow, flow_time, named_optimiser
from stepwell.trajectory import TIME_UNIT, load, model_at

from ._flags import flows
from ._names import differences, identity, own_place
from ._setup import TRACKED, Setup, objective, observables

SNAPSHOTS = 101
"""Of a run, at the most."""
_RELATIVE, _ABSOLUTE = 1e-8, 1e-6
"""Tolerances of the flow, the second per unit of initial weight: well below the error of a descent's finite rate."""


def train(setup: Setup, stored: xr.Dataset | None, checkpoint: Checkpoint | None = None) -> xr.Dataset:
    """Train for as many steps as the flag `--epoch` says, from the start or from where a stored run ended.

    Ctrl-C, SIGTERM and SIGHUP end the training and keep what there is, with the outcome `interrupted`. A run that is
    resumed by its checkpoint is bit for bit the run that was not interrupted, and so is a descent that is resumed from
    its trajectory.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it.
    - `stored`: a trajectory of the same flags that is resumed from its last snapshot, as `stored_run` reads it; None
      starts from the initial model.
    - `checkpoint`: where the state of the run is saved now and then, as `checkpoint_of` returns it; by default nowhere.
      If it says so, a run that was killed or interrupted continues from there.

    **Returns:** the whole trajectory: curves by step, from 0 to the last, and weights at up to 101 snapshots.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> words = ["--in_dim", "2", "--epoch", "1000", "--white_cov"]
    >>> run = training.train(training.set_up(Published.of(parser.parse_args(words)), "population"), None)
    >>> run["loss"].values[0, [0, -1]].round(2).tolist(), run.attrs["outcome"]
    ([1.0, 0.09], 'finished')
    """
    epoch = setup.flags.epoch
    grid = np.linspace(0, epoch, min(SNAPSHOTS, epoch + 1)).round().astype(int)
    start = 0 if stored is None else last_step(stored)
    if stored is not None and start >= epoch:
        return stored
    members = setup.members
    initial = _together([member.model for member in members])
    measured = _together([objective(member) for member in members]), observables(setup)

    def part(model: Any, start: int, checkpoint: Checkpoint | None) -> xr.Dataset:
        return _part(setup, measured, model, start, grid, checkpoint)

    resumed = checkpoint is not None and checkpoint.resume and checkpoint.file.exists()
    if stored is None or resumed:
        try:
            return part(initial, 0, checkpoint)
        except AnotherRun:  # it may be one that continued the stored run
            if stored is None:
                raise
    if not setup.beyond.plain or setup.beyond.seeds is not None:
        raise InvalidInput(
            f"the stored run ended at step {start}, and of an ensemble, or of an optimiser with a state, only an "
            "interrupted run can be resumed, by its checkpoint; leave out --resume"
        )
    model = model_at(stored, setup.model)
    try:
        rest = part(model, start, checkpoint)
    except AnotherRun:
        if stored.attrs["outcome"] != "interrupted":
            raise
        # Ctrl-C saved both, and this run has another end than that one.
        assert checkpoint is not None
        rest = part(model, start, dataclasses.replace(checkpoint, resume=False))
    return _joined(stored, rest, start, grid)


def _together(members: list[Any]) -> Any:
    return members[0] if len(members) == 1 else Ensemble.of(members)


def converged_setup(setup: Setup) -> Setup:
    """The run that is as long as gradient flow takes to converge, in steps of the rate `--lr`.

    That is the flow over infinitely many sequences, whose lowest loss is known: a plateau is not taken for the end.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it, by an engine that flows.

    **Returns:** the same with another `epoch`. `InvalidInput` is raised if the flow does not converge.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> words = ["--in_dim", "2", "--white_cov", "--trainset_size", "50"]
    >>> setup = training.set_up(Published.of(parser.parse_args(words)), "flow")
    >>> 500 < training.converged_setup(setup).flags.epoch < 5000
    True
    """
    members = setup.members
    model, loss = _together([m.model for m in members]), _together([_infinite(member) for member in members])
    run = flow(model, loss, save=2, **_tolerances(setup))
    if run.attrs["outcome"] == "interrupted":
        raise KeyboardInterrupt
    if run.attrs["outcome"] != "converged":
        raise InvalidInput(
            f"--until converged: the flow ended as {run.attrs['outcome']} ({run.attrs['message']}); give a time"
        )
    steps = max(1, int(np.ceil(float(run["time"][-1]) / float(flow_time(1, setup.flags.lr)))))
    return setup._replace(flags=dataclasses.replace(setup.flags, epoch=steps))


def _infinite(setup: Setup) -> Any:
    """The loss over infinitely many sequences."""
    return objective(setup if setup.beyond.several else setup._replace(engine="population"))


def tolerances(weights: np.ndarray) -> dict[str, Any]:
    """Tolerances of the flow for a run that begins with these weights.

    **Arguments:**

    - `weights`: all initial weights of a run.

    **Returns:** `rtol` and `atol`, for `flow`.

    **Example:**

    >>> import numpy as np
    >>> from stepwell.published import training
    >>> training.tolerances(np.full(10, 0.01))
    {'rtol': 1e-08, 'atol': 1e-08}
    """
    return {"rtol": _RELATIVE, "atol": _ABSOLUTE * float(np.sqrt(np.mean(np.ravel(weights) ** 2)))}


def _tolerances(setup: Setup) -> dict[str, Any]:
    """Those of the run's own start, also where it is resumed from grown weights."""
    return tolerances(np.concatenate([np.ravel(w) for w in setup.model.weights().values()]))


def checkpoint_of(setup: Setup, folder: Path, *, resume: bool) -> Checkpoint:
    """The checkpoint of a run: a hidden file in the folder of its files, named by its whole configuration.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it.
    - `folder`: the folder of the files.
    - `resume`: whether to continue from it, if it is there.

    **Returns:** the checkpoint, for `train`. Remove the file once the trajectory is written.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2"])), "population")
    >>> training.checkpoint_of(setup, Path("."), resume=False).file.suffix
    '.checkpoint'
    """
    return Checkpoint(folder / f".{own_place(folder, setup).trajectory.stem}.checkpoint", resume)


def last_step(trajectory: xr.Dataset) -> int:
    """The step of the last snapshot, from which the run can be resumed.

    **Arguments:**

    - `trajectory`: a trajectory that `train` returned or `stored_run` read.

    **Returns:** the step, counted from the beginning of the run.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> flags = Published.of(parser.parse_args(["--in_dim", "2", "--epoch", "20"]))
    >>> training.last_step(training.train(training.set_up(flags, "population"), None))
    20
    """
    return int(trajectory["snapshot"][-1])


def stored_run(setup: Setup, path: Path) -> xr.Dataset | None:
    """Read the trajectory of a previous run, to resume it.

    Raises `InvalidInput` if it was trained with other flags than those of `setup` (`--epoch` may differ), cannot be
    resumed, or is damaged: a file without its checksum is not resumed.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it.
    - `path`: the netCDF file, as `find_stored` finds it.

    **Returns:** the trajectory, or None if there is no such file.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2"])), "population")
    >>> training.stored_run(setup, Path("no-such-run.nc")) is None
    True
    """
    if not path.exists():
        return None
    stored = load(path, unverified=False)
    configuration = json.loads(stored.attrs.get("configuration", "{}"))
    if "flags" not in configuration:
        raise InvalidInput(f"{path} was not written by stepwell train; give another --out")
    different = differences(configuration["flags"], identity(setup), but=("epoch",))
    if different:
        raise InvalidInput(
            f"{path} holds another run ({', '.join(different)}); give the same flags, or leave out --resume"
        )
    if stored.attrs["outcome"] not in ("finished", "interrupted"):
        raise InvalidInput(f"{path} ended as {stored.attrs['outcome']!r} and cannot be resumed; leave out --resume")
    return stored


def _configuration(setup: Setup) -> dict[str, Any]:
    keys = {f"{name}_key": getattr(setup.keys, name) for name in setup.keys._fields}
    return {"flags": identity(setup), "task": setup.task, "normalisation": setup.normalisation, **keys}


def _rule(setup: Setup, model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rate or the optimiser, as keywords of `descend`; and what the trajectory remembers of it."""
    flags, beyond = setup.flags, setup.beyond
    if beyond.plain:
        return {"rate": flags.lr}, {}
    named = named_optimiser(beyond.optimiser, beyond.schedule, rate=flags.lr, steps=flags.epoch, model=model)
    return {"optimiser": named.optimiser}, {"optimiser": named.specification, "rate": flags.lr}


def _part(
    setup: Setup, measured: tuple[Any, Any], model: Any, start: int, grid: np.ndarray, checkpoint: Checkpoint | None
) -> xr.Dataset:
    """Steps from `start` to the end, numbered from the run's beginning, with snapshots on the grid."""
    rate, steps, (loss, watched) = setup.flags.lr, setup.flags.epoch - start, measured
    if flows(setup.engine):
        times = flow_time(np.arange(steps + 1), rate)
        trajectory = flow(
            model,
            loss,
            until=float(times[-1]),
            save=times,
            **_tolerances(setup),
            observe=watched,
            configuration=_configuration(setup),
            checkpoint=checkpoint,
        )
        trajectory = _by_step(trajectory, tuple(setup.model.weight_dims), rate, start, grid)
    else:
        rule, remembered = _rule(setup, model)
        trajectory = descend(
            model,
            loss,
            **rule,
            steps=steps,
            start=start,
            snapshots=grid[grid > start] - start,
            observe=watched,
            configuration={**_configuration(setup), **remembered},
            checkpoint=checkpoint,
        )
    if setup.beyond.seeds is not None:
        trajectory = trajectory.assign_coords(run=list(setup.beyond.seeds))
    if TRACKED in trajectory and trajectory.sizes["step"]:
        trajectory[TRACKED] = (("run", "step", "head"), trajectory[TRACKED].values, {"long_name": "value weight"})
    return trajectory


def _by_step(trajectory: xr.Dataset, weights: tuple[str, ...], rate: float, start: int, grid: np.ndarray) -> xr.Dataset:
    """A flow saved at the times of steps, laid out as a descent is: curves by step, weights by snapshot."""
    steps = start + np.arange(trajectory.sizes["time"])
    kept = np.isin(steps, grid)
    kept[[0, -1]] = True
    time = ("step", flow_time(steps, rate), {"units": TIME_UNIT})
    curves = trajectory.drop_vars([*weights, "time"]).rename(time="step").assign_coords(step=steps, time=time)
    moved = trajectory[list(weights)].drop_vars("time").isel(time=np.flatnonzero(kept)).rename(time="snapshot")
    for axis, values in (("step", curves), ("snapshot", moved := moved.assign_coords(snapshot=steps[kept]))):
        values[axis].attrs["units"] = "step"
    moved = moved.assign_coords(snapshot_time=("snapshot", flow_time(steps[kept], rate), {"units": TIME_UNIT}))
    return curves.assign_coords(moved.coords).assign(moved.data_vars)


def _joined(first: xr.Dataset, second: xr.Dataset, start: int, grid: np.ndarray) -> xr.Dataset:
    """Both parts as one, as if the run had never stopped at `start`."""
    joined = {}
    last = int(second["snapshot"][-1])
    keep = [s != start or s == last or s in grid for s in second["snapshot"].values]
    for axis, tail in (("step", second), ("snapshot", second.isel(snapshot=np.flatnonzero(keep)))):
        names = [str(name) for name, values in second.data_vars.items() if axis in values.dims]
        parts = [first[names].isel({axis: np.flatnonzero(first[axis].values < start)}), tail[names]]
        joined[axis] = xr.concat(parts, axis, data_vars="all", coords="minimal", compat="override", join="override")
    result = joined["step"].assign_coords(joined["snapshot"].coords).assign(joined["snapshot"].data_vars)
    configuration = json.loads(first.attrs["configuration"])
    configuration["flags"] = json.loads(second.attrs["configuration"])["flags"]
    if "steps" in configuration:
        configuration["steps"] = start + json.loads(second.attrs["configuration"])["steps"]
    result.attrs = {**second.attrs, "configuration": json.dumps(configuration)}
    return result
