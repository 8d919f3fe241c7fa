"""Single runs in the store: what `stepwell train` has trained once it need not train again."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import DIGEST
from stepwell._util.text import name_of
from stepwell.experiments import Experiment

from ._shard import Shard, file_name
from ._store import Store

_ATTRIBUTES = ("configuration", "versions", "outcome", "message")
_ENDED = ("finished", "converged", "stuck")


def save_run(store: Store, trajectory: xr.Dataset, *, fresh: bool = False) -> Path:
    """Write the trajectory of an experiment, with one seed or several, to the store.

    **Arguments:**

    - `store`: the store.
    - `trajectory`: what `Experiment.run` returned; it must have come to its end.
    - `fresh`: whether it takes the place of what the store has of these runs.

    **Returns:** the file.

    **Example:**

    >>> run = sw.Experiment(task={"dim": 2}, training={"until": 1.0}).run(progress=False)
    >>> sw.store.save_run(sw.store.Store("runs"), run).suffix
    '.nc'
    """
    experiment, seeds = Experiment.of(trajectory), trajectory["run"].values.tolist()
    if trajectory.attrs["outcome"] not in _ENDED:
        raise InvalidInput(f"the run is {trajectory.attrs['outcome']}; a store keeps runs that came to their end")
    losses = trajectory["loss"].values
    scalars = {
        "outcome": [trajectory.attrs["outcome"]] * len(losses),
        "first_loss": losses[:, 0],
        "final_loss": losses[:, -1],
        "largest_loss": losses.max(axis=1),
    }
    provenance = {name: trajectory.attrs[name] for name in _ATTRIBUTES}
    provenance["coordinates"] = sorted(str(name) for name in trajectory.coords if name != "run")
    recorded = trajectory.drop_vars("run").reset_coords()
    recorded.attrs = {"provenance": json.dumps(provenance)}
    canonical = experiment.canonical()
    del canonical["seed"]
    shard = Shard(canonical, {"seed": np.array(seeds, np.int64)}, scalars, recorded)
    # A sweep may have kept the same run without what a trajectory remembers.
    return store.add(shard, replace=fresh or load_run(store, experiment, seeds) is None)


def load_run(store: Store, experiment: Experiment, seeds: Sequence[int] | None = None) -> xr.Dataset | None:
    """Return the trajectory of an experiment that the store has.

    **Arguments:**

    - `store`: the store.
    - `experiment`: what is asked for.
    - `seeds`: its seeds, if there are several.

    **Returns:** the trajectory, as `save_run` got it; None if the store has no shard of just these runs, or it is
    damaged.

    **Example:**

    >>> sw.store.load_run(sw.store.Store("none"), sw.Experiment()) is None
    True
    """
    from . import _reader

    own = [experiment.seed] if seeds is None else [int(seed) for seed in seeds]
    canonical = experiment.canonical()
    names = "".join(name_of({**canonical, "seed": seed}) for seed in own)
    wanted = np.frombuffer(bytes.fromhex(names), np.uint8).reshape(-1, DIGEST)
    file = store.shards_path / file_name(wanted)
    if not file.exists():
        return None
    try:
        shard = _reader.load(file)
        attributes = json.loads(shard.data.attrs.get("provenance", "null"))
        coordinates = attributes["coordinates"]
        made = shard.data.set_coords(coordinates)
    except (InvalidInput, OSError, KeyError, TypeError, ValueError):
        return None
    if not np.array_equal(shard.names, wanted) or not all(isinstance(attributes.get(n), str) for n in _ATTRIBUTES):
        return None
    made = made.assign_coords(run=own)
    # The same run may have been described in other words then.
    described = {**experiment.to_dict(), "seed": own[0], **({} if seeds is None else {"seeds": own})}
    made.attrs = {**{name: attributes[name] for name in _ATTRIBUTES}, "experiment": json.dumps(described)}
    return made
