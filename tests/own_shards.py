"""Shards to test stores with."""

import hashlib
import io
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import xarray as xr

from stepwell._util.netcdf import END, checksum_line
from stepwell.store import Shard


def shard_of(first: int = 0, runs: int = 5, **model: Any) -> Shard:
    """Runs with the seeds `first` on, of a model with these fields; the final loss is a tenth of the seed."""
    seeds = np.arange(first, first + runs)
    loss = seeds[:, None] / 10 + np.array([2.0, 1.0, 0.0])
    return Shard(
        {
            "task.eigenvalues": [0.6, 0.4],
            **{f"model.{name}": value for name, value in {"kind": "separate", "rank": 2, **model}.items()},
        },
        {"seed": seeds, "training.rate": 0.1 + seeds / 3},
        {"final_loss": loss[:, -1], "outcome": ["diverged" if seed % 3 == 0 else "finished" for seed in seeds]},
        xr.Dataset({"loss": (("run", "step"), loss), "step": [0, 5, 10]}),
    )


def resealed(content: bytes, edit: Callable[[Any], Any]) -> bytes:
    """A shard that was edited by someone who knows how the checksum is made."""
    buffer = io.BytesIO(content[:-END])
    with h5py.File(buffer, "r+") as file:
        edit(file)
    made = buffer.getvalue()
    return made + checksum_line(hashlib.sha256(made).hexdigest())
