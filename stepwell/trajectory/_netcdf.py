"""Trajectories as netCDF files."""

import os
from pathlib import Path

import xarray as xr

from stepwell._arguments import checked
from stepwell._errors import InvalidInput
from stepwell._files import write_whole


@checked
def save(trajectory: xr.Dataset, path: str | os.PathLike) -> Path:
    """Write a trajectory to one netCDF file, without loss of digits.

    The file is written whole or not at all; a file of that name is replaced.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.
    - `path`: the name of the file, by convention ending in `.nc`. Its folder must exist.

    **Returns:** the path of the file.

    **Example:**

    >>> import jax
    >>> import numpy as np
    >>> import stepwell as sw
    >>> objective = sw.objectives.Population(sw.tasks.InContextRegression(np.eye(2), 10))
    >>> model = sw.models.MergedAttention.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
    >>> trajectory = sw.dynamics.descend(model, objective, rate=0.05, steps=20, progress=False)
    >>> print(sw.trajectory.save(trajectory, "run.nc"))
    run.nc
    """
    return write_whole(path, lambda name: trajectory.to_netcdf(name, engine="h5netcdf") and None)


@checked
def load(path: str | os.PathLike) -> xr.Dataset:
    """Read the trajectory that `save` wrote, into memory.

    **Arguments:**

    - `path`: the name of the file. If there is none, or it is not a trajectory, `InvalidInput` is raised.

    **Returns:** the trajectory, equal to the one that was saved.

    **Example:**

    >>> import jax
    >>> import numpy as np
    >>> import stepwell as sw
    >>> objective = sw.objectives.Population(sw.tasks.InContextRegression(np.eye(2), 10))
    >>> model = sw.models.MergedAttention.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
    >>> trajectory = sw.dynamics.descend(model, objective, rate=0.05, steps=20, progress=False)
    >>> path = sw.trajectory.save(trajectory, "run.nc")
    >>> sw.trajectory.load(path).identical(trajectory)
    True
    """
    try:
        with xr.open_dataset(path, engine="h5netcdf") as stored:
            return stored.load()
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {path}; check the name") from None
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"{path} is not a netCDF trajectory ({error}); it may be cut short") from None
