"""Single runs in the store: what `stepwell train` has trained once it need not train again."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from stepwell._errors import InvalidInput
from stepwell.published import Run
from stepwell.published.training import SNAPSHOTS, Setup, identity

from ._configuration import DIGEST, run_name
from ._fields import configuration_of
from ._plan import Block, Work
from ._shard import Shard, file_name
from ._store import Store
from ._study import Record

_ATTRIBUTES = ("configuration", "versions", "outcome", "message")


def save_run(store: Store, setup: Setup, trajectory: xr.Dataset, *, fresh: bool = False) -> Path:
    """Put the trajectory of a run, or of several seeds, into the store.

    **Arguments:**

    - `store`: the store.
    - `setup`: what was trained, as `stepwell.published.training.set_up` builds it.
    - `trajectory`: what it returned; it must be finished.
    - `fresh`: whether it takes the place of what the store has of these runs.

    **Returns:** the file.
    """
    work = _work(setup, trajectory.sizes["step"], trajectory.sizes["snapshot"])
    losses = trajectory["loss"].values
    scalars = {
        "outcome": ["finished"] * work.runs,
        "first_loss": losses[:, 0],
        "final_loss": losses[:, -1],
        "largest_loss": losses.max(axis=1),
    }
    provenance = {name: trajectory.attrs[name] for name in _ATTRIBUTES}
    recorded = trajectory.drop_vars("run").reset_coords()
    recorded = recorded.assign_attrs({"provenance": json.dumps(provenance)})
    shard = Shard(work.common, work.fields, scalars, recorded)
    return store.add(shard, replace=fresh)


def load_run(store: Store, setup: Setup) -> xr.Dataset | None:
    """The trajectory of a run that the store has.

    **Arguments:**

    - `store`: the store.
    - `setup`: what is asked for.

    **Returns:** the trajectory, as it was kept; None if the store has no shard of just these seeds, or it is damaged.
    """
    from . import _reader

    points = setup.flags.epoch + 1
    work = _work(setup, points, min(SNAPSHOTS, points))
    names = [run_name(work.configuration(row)) for row in range(work.runs)]
    wanted = np.frombuffer(bytes.fromhex("".join(names)), np.uint8).reshape(-1, DIGEST)
    file = store.shards_path / file_name(wanted)
    if not file.exists():
        return None
    try:
        shard = _reader.load(file)
        attributes = json.loads(shard.data.attrs.get("provenance", "null"))
        configuration = json.loads(attributes["configuration"])
    except (InvalidInput, OSError, KeyError, TypeError, ValueError):
        return None
    if not np.array_equal(shard.names, wanted) or not isinstance(configuration, dict):
        return None
    if not all(isinstance(attributes.get(name), str) for name in _ATTRIBUTES):
        return None
    # The same run may have been described in other words then.
    attributes["configuration"] = json.dumps({**configuration, "flags": identity(setup)})
    seeds = setup.beyond.seeds
    made = shard.data.assign_coords(run=np.arange(len(shard)) if seeds is None else list(seeds))
    coordinates = [name for name in ("step", "snapshot", "time", "snapshot_time") if name in made.variables]
    made = made.set_coords(coordinates)
    made.attrs = {name: attributes[name] for name in _ATTRIBUTES}
    return made


def _work(setup: Setup, points: int, snapshots: int) -> Work:
    """The runs of a set-up, one for each seed."""
    one_seed = dataclasses.replace(setup.beyond, seeds=None)
    run = Run(setup.flags, one_seed, setup.engine)
    common = configuration_of(run, Record(points, "linear", snapshots), single=True)
    seeds = np.array([setup.flags.seed] if setup.beyond.seeds is None else setup.beyond.seeds, np.int64)
    fields: dict[str, Any] = {"seed": seeds}
    del common["seed"]
    return Work.of([Block(common, fields, np.arange(seeds.size))])
