"""Trajectories as netCDF files."""

import os
from pathlib import Path

import xarray as xr

from stepwell._errors import InvalidInput
from stepwell._files import write_whole


def save(trajectory: xr.Dataset, path: str | os.PathLike) -> Path:
    """Write a trajectory to one netCDF file, without loss of digits; returns the path."""
    return write_whole(path, lambda name: trajectory.to_netcdf(name, engine="h5netcdf") and None)


def load(path: str | os.PathLike) -> xr.Dataset:
    """Read the trajectory that `save` wrote to `path`, into memory; `InvalidInput` if there is none."""
    try:
        with xr.open_dataset(path, engine="h5netcdf") as stored:
            return stored.load()
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {path}; check the name") from None
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"{path} is not a netCDF trajectory ({error}); it may be cut short") from None
