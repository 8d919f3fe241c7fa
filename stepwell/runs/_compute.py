"""The runs of one shard, computed by one program."""

from typing import Any

import numpy as np
import xarray as xr

from stepwell.dynamics import descend, flow, flow_time, named_optimiser
from stepwell.published import flows
from stepwell.published.training import tolerances

from ._build import Built, build
from ._fields import run_from
from ._plan import Work, fine_steps, kept_steps
from ._scalars import Measured, scalars_of
from ._shard import Shard

_PARTS = 8
"""Where the solver gives up a program, it is divided into so many, until it is known which runs are the cause."""


def compute(work: Work, size: int | None = None) -> Shard:
    """Train all runs of a shard.

    Raises `KeyboardInterrupt` where it was interrupted: what is begun is done again.

    **Arguments:**

    - `work`: the runs.
    - `size`: how many the program is compiled for; by default as many as there are. Where there are fewer, the last is
      repeated, and forgotten.

    **Returns:** the shard, with losses, snapshots and scalars of every run.
    """
    padding = max(0, (size or work.runs) - work.runs)
    padded = work.take([*range(work.runs), *[work.runs - 1] * padding]) if padding and work.fields else work
    _, record = run_from(work.configuration(0))
    measured = _trained(padded, build(padded))
    scalars = scalars_of(measured, record.measure)
    kept = np.isin(measured.steps, kept_steps(int(measured.steps[-1]), record.points, record.spacing))
    data = measured.run.assign(
        loss=(("run", "step"), measured.losses[:, kept]),
        step=("step", measured.steps[kept].astype(np.int64), {"units": "step"}),
    )
    shard = Shard(
        work.common,
        work.fields,
        {name: column[: work.runs] for name, column in scalars.items()},
        data.isel(run=slice(work.runs)),
    )
    return shard


def _trained(work: Work, built: Built) -> Measured:
    """All runs, trained together; if the solver of the flow gives up, in smaller parts."""
    flags, record = built.setup.flags, run_from(work.configuration(0))[1]
    kept = kept_steps(flags.epoch, record.points, record.spacing)
    steps = np.union1d(fine_steps(flags.epoch, flowing=flows(built.setup.engine)), kept)
    places = np.unique(np.linspace(0, kept.size - 1, record.snapshots).round().astype(int))
    snapshots = kept[places]
    if not flows(built.setup.engine):
        run = descend(
            built.models,
            built.losses,
            **_rule(built),
            steps=flags.epoch,
            record=steps,
            snapshots=snapshots,
            progress=False,
        )
        if run.attrs["outcome"] == "interrupted":
            raise KeyboardInterrupt
        return _measured(built, run, steps, snapshots, np.zeros(work.runs, bool))
    run = flow(
        built.models,
        built.losses,
        until=float(flow_time(flags.epoch, flags.lr)),
        save=np.asarray(flow_time(steps, flags.lr)),
        progress=False,
        **tolerances(_flat(built)),
    )
    if run.attrs["outcome"] == "interrupted":
        raise KeyboardInterrupt
    run = run.drop_vars("time").rename(time="step").assign_coords(step=steps[: run.sizes["time"]])
    weights = list(built.setup.model.weight_dims)
    there = np.isin(run["step"].values, snapshots)
    moved = run[weights].isel(step=np.flatnonzero(there)).rename(step="snapshot")
    run = run.drop_vars(weights).assign(moved.data_vars).assign_coords(moved.coords)
    if run.sizes["step"] == steps.size:
        return _measured(built, run, steps, snapshots, np.zeros(work.runs, bool))
    if work.runs == 1:
        return _measured(built, run, steps, snapshots, np.ones(1, bool))
    rows = np.array_split(np.arange(work.runs), min(_PARTS, work.runs))
    parts = [work.take(part.tolist()) for part in rows]
    return _joined(built, [_trained(part, build(part)) for part in parts])


def _rule(built: Built) -> dict[str, Any]:
    """The rate, or the optimiser, as keywords of `descend`."""
    beyond, flags = built.setup.beyond, built.setup.flags
    if beyond.plain:
        return {"rate": built.rates}
    named = named_optimiser(beyond.optimiser, beyond.schedule, rate=flags.lr, steps=flags.epoch, model=built.models)
    return {"optimiser": named.optimiser}


def _flat(built: Built) -> np.ndarray:
    """The smallest initial weights of any run: what they need is enough for all."""
    weights = [np.asarray(part) for part in built.models.stacked.weights().values()]
    flat = np.concatenate([part.reshape(part.shape[0], -1) for part in weights], axis=1)
    return flat[np.argmin(np.mean(flat**2, axis=1))]


def _measured(built: Built, run: xr.Dataset, steps: np.ndarray, snapshots: np.ndarray, failed: np.ndarray) -> Measured:
    """What was recorded, on the whole grid of steps: not a number from where it has no end."""
    runs = built.models.size
    losses = np.full((runs, steps.size), np.nan)
    losses[:, : run.sizes["step"]] = run["loss"].values
    # What is not finite once stays so, also where it is recorded as finite later.
    finite = np.logical_and.accumulate(np.isfinite(losses), axis=1)
    losses[~finite] = np.nan
    variables: dict[str, Any] = {}
    at = {int(step): number for number, step in enumerate(run["snapshot"].values)}
    for name in built.setup.model.weight_dims:
        recorded = run[name].values
        whole = np.full((runs, snapshots.size, *recorded.shape[2:]), np.nan)
        for number, step in enumerate(snapshots.tolist()):
            if step in at:
                whole[:, number] = recorded[:, at[step]]
        variables[name] = (run[name].dims, whole)
    data = xr.Dataset(variables, {"snapshot": ("snapshot", snapshots, {"units": "step"})})
    return Measured(built, steps, losses, data, failed)


def _joined(built: Built, parts: list[Measured]) -> Measured:
    return Measured(
        built,
        parts[0].steps,
        np.concatenate([part.losses for part in parts]),
        xr.concat([part.run for part in parts], "run"),
        np.concatenate([part.failed for part in parts]),
    )
