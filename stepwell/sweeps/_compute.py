"""The runs of a piece of work, trained: one shard for each group of runs that one program computes."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from stepwell._util.memory import free_programs_if_many
from stepwell.dynamics import Record, descend, flow, online
from stepwell.experiments import Descent, Flow, Online, TimeScale
from stepwell.store import Column, Shard

from ._plan import Block, fine_steps, fine_times, is_stacked
from ._scalars import Measured, scalars_of
from ._stacked import Built, build

_PARTS = 8
"""Where the solver gives up a program, it is divided into so many, until it is known which runs are the cause."""
_TOLERANCE = 1e-5
"""The absolute tolerance of a flow, relative to its initial weights, as `flow` has it for a single run."""


def compute(work: Block, size: int | None = None) -> list[Shard]:
    """Train all runs of a piece of work, and return a shard for each structure.

    A stacked program is compiled for `size` runs; where there are fewer, the last is repeated, and forgotten. Raises
    `KeyboardInterrupt` where it was interrupted: what is begun is done again.
    """
    padding = max(0, (size or 0) - len(work)) if is_stacked(work.configuration()) else 0
    padded = work.take(np.minimum(np.arange(len(work) + padding), len(work) - 1))
    groups: dict[Any, list[_Group]] = {}
    for places, built in build(padded):
        measured, data = _trained(built)
        scalars = scalars_of(measured)
        if padding:
            places, data = places[: len(work)], data.isel(run=slice(len(work)))
            scalars = {name: column[: len(work)] for name, column in scalars.items()}
        group = _Group(places, scalars, data)
        groups.setdefault(group.layout(), []).append(group)
        free_programs_if_many()
    return [_shard(work, same) for same in groups.values()]


class _Group(NamedTuple):
    rows: np.ndarray
    scalars: dict[str, Column]
    data: xr.Dataset

    def layout(self) -> Any:
        """What runs must have in common to be in one shard."""
        arrays = []
        for name, each in self.data.variables.items():
            inner = each.shape[1:] if "run" in each.dims else each.values.tobytes()
            arrays.append((str(name), each.dims, inner, each.dtype.str))
        return tuple(self.scalars), tuple(sorted(arrays, key=lambda array: array[0]))


def _shard(work: Block, groups: list[_Group]) -> Shard:
    first, part = groups[0], work.take(np.concatenate([group.rows for group in groups]))
    if len(groups) == 1:
        return Shard({**part.common}, {**part.fields}, first.scalars, first.data)
    scalars = {name: [one for group in groups for one in group.scalars[name].decoded()] for name in first.scalars}
    variables = {
        name: (each.dims, np.concatenate([group.data[name].values for group in groups]), each.attrs)
        for name, each in first.data.variables.items()
        if "run" in each.dims
    }
    shared = {name: each for name, each in first.data.variables.items() if "run" not in each.dims}
    return Shard({**part.common}, {**part.fields}, scalars, xr.Dataset({**variables, **shared}))


def _trained(built: Built) -> tuple[Measured, xr.Dataset]:
    training, keeping = built.training, built.experiment.build_record()
    if isinstance(training, Descent):
        return _descended(built, training, keeping)
    if isinstance(training, Flow) and training.until != "converged":
        return _flowed(built, training, keeping, float(training.until))
    return _alone(built, keeping)


def _descended(built: Built, training: Descent, keeping: Record) -> tuple[Measured, xr.Dataset]:
    kept = keeping.steps(training.steps)
    steps = np.union1d(fine_steps(training.steps), kept)
    snapshots = kept[keeping.places(kept)]
    single = built.size == 1 and built.rates is not None
    rates: Any = float(built.rates[0]) if single else built.rates  # pyright: ignore[reportOptionalSubscript]
    rule, _ = training.rule(built.models, rates)
    record = Record(points=steps, snapshots=snapshots)
    common: Any = {"steps": training.steps, "record": record, "progress": False, "throw": False, **rule}
    loss = built.losses
    if isinstance(loss, Online):
        run = online(built.models, loss.task, batch_size=loss.batch_size, key=loss.key, **common)
    else:
        run = descend(built.models, loss, advice=False, **common)
    _check_interruption(run)
    losses = _whole(run["loss"].values, run.sizes["step"], steps.size)
    weights = {name: _at(run, name, "snapshot", snapshots) for name in built.template.weight_dims}
    there = np.isin(steps, kept)
    data = _recorded(run, "step", kept, losses[:, there], snapshots, weights, {"units": "step"})
    for name, axis, points in (("time", "step", kept), ("snapshot_time", "snapshot", snapshots)):
        times = built.times(points)
        if times is not None:
            data = data.assign({name: (("run", axis)[-times.ndim :], times, {"units": built.unit})})
    return Measured(built, losses, steps, built.step_times(), _last(weights)), data


def _flowed(built: Built, training: Flow, keeping: Record, until: float) -> tuple[Measured, xr.Dataset]:
    """Gradient flow until a time; where the solver gives up, in smaller parts."""
    kept = keeping.times(until)
    times = np.union1d(fine_times(until), kept) if "drops" in built.experiment.record.measure else kept
    snapshots = kept[keeping.places(kept)]
    # The smallest initial weights of any run: what they need is enough for all.
    flat = np.concatenate([part.reshape(built.size, -1) for part in built.weights().values()], axis=1)
    largest = np.abs(flat).max()
    smallest = largest * float(np.sqrt(np.mean((flat / largest) ** 2, axis=1)).min())
    scaled = times / built.factors[0]
    run = flow(
        built.models,
        built.losses,
        until=float(scaled[-1]),
        record=Record(points=scaled),
        rtol=training.tolerance,
        atol=min(_TOLERANCE * smallest, training.tolerance),
        progress=False,
        throw=False,
    )
    _check_interruption(run)
    reached = run.sizes["time"]
    if reached < times.size and built.size > 1:
        parts = np.array_split(np.arange(built.size), min(_PARTS, built.size))
        made = [_flowed(built.take(part), training, keeping, until) for part in parts]
        return Measured.joined(built, [one for one, _ in made]), xr.concat([one for _, one in made], "run")
    losses = _whole(run["loss"].values, reached, times.size)
    run = run.assign_coords(time=times[:reached])
    weights = {name: _at(run, name, "time", snapshots) for name in built.template.weight_dims}
    data = _recorded(run, "time", kept, losses[:, np.isin(times, kept)], snapshots, weights, {"units": built.unit})
    failed = np.full(built.size, "solver failed" if reached < times.size else "")
    return Measured(built, losses, times, np.ones(built.size), _last(weights), failed), data


def _alone(built: Built, keeping: Record) -> tuple[Measured, xr.Dataset]:
    """One run by its own training: until it has converged, or as a kind of the user's says."""
    scale = TimeScale(float(built.factors[0]), built.unit)
    options = {"progress": False, "configuration": None, "checkpoint": None, "throw": False}
    run = built.training.run(built.models, built.losses, keeping, scale, **options)
    _check_interruption(run)
    axis = "step" if "step" in run["loss"].dims else "time"
    outcome = run.attrs.get("outcome", "finished")
    if isinstance(built.training, Flow) and "drops" in built.experiment.record.measure and outcome == "converged":
        measured, _ = _flowed(built, built.training, keeping, float(run["time"].values[-1]))
        losses, points, last = measured.losses, measured.points, measured.last
    else:
        losses = _whole(run["loss"].values, run.sizes[axis], run.sizes[axis])
        points = np.asarray(run[axis].values)
        along = "snapshot" if "snapshot" in run.dims else axis
        last = {name: run[name].isel({along: -1}).values for name in built.template.weight_dims}
    data = (_with_own_times(run) if axis == "time" else run).drop_vars("run", errors="ignore").reset_coords()
    data.attrs = {}
    return Measured(built, losses, points, np.ones(1), last, np.array([outcome])), data


def _with_own_times(run: xr.Dataset) -> xr.Dataset:
    for axis, name, other in (("time", "time", "point"), ("snapshot", "snapshot_time", "snapshot")):
        if axis in run.dims:
            times = run[axis]
            run = run.drop_vars(axis).rename_dims({axis: other} if axis != other else {})
            run = run.assign({name: (("run", other), times.values[None], times.attrs)})
    return run


def _check_interruption(run: xr.Dataset) -> None:
    if run.attrs["outcome"] == "interrupted":
        raise KeyboardInterrupt


def _whole(recorded: np.ndarray, reached: int, points: int) -> np.ndarray:
    """Losses on the whole grid. What is not finite once stays so, also where it is recorded as finite later."""
    losses = np.full((recorded.shape[0], points), np.nan)
    losses[:, :reached] = recorded
    losses[~np.logical_and.accumulate(np.isfinite(losses), axis=1)] = np.nan
    return losses


def _at(run: xr.Dataset, name: str, axis: str, wanted: np.ndarray) -> np.ndarray:
    """A weight at the points wanted; not a number at those that were not reached."""
    values, there = run[name].values, run[axis].values
    made = np.full((values.shape[0], wanted.size, *values.shape[2:]), np.nan)
    reached = np.isin(wanted, there)
    made[:, reached] = values[:, np.searchsorted(there, wanted[reached])]
    return made


def _last(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: values[:, -1] for name, values in weights.items()}


def _recorded(
    run: xr.Dataset,
    axis: str,
    points: np.ndarray,
    losses: np.ndarray,
    snapshots: np.ndarray,
    weights: dict[str, np.ndarray],
    units: dict[str, str],
) -> xr.Dataset:
    variables: dict[str, Any] = {
        name: (("run", "snapshot", *map(str, run[name].dims[2:])), values) for name, values in weights.items()
    }
    variables |= {
        "loss": (("run", axis), losses),
        axis: (axis, points, units),
        "snapshot": ("snapshot", snapshots, units),
    }
    return xr.Dataset(variables)
