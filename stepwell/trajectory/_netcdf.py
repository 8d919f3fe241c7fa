"""Trajectories as netCDF files with a checksum; `stepwell/_util/netcdf.py` says how it is kept."""

import io
import os
from pathlib import Path

import h5py
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import why, write_bytes
from stepwell._util.netcdf import MARK, sealed, verify
from stepwell._util.text import shortened


@checked
def save(trajectory: xr.Dataset, path: str | os.PathLike) -> Path:
    """Write a trajectory to one netCDF file, without loss of digits.

    The file is written whole or not at all; a file of that name is replaced. It carries a checksum, which `load`
    verifies; other programs open it as any netCDF-4 file.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.
    - `path`: the name of the file, by convention ending in `.nc`. Its folder must exist.

    **Returns:** the path of the file.

    **Example:**

    >>> model = sw.MergedAttention.aligned(np.eye(2), heads=1, scale=0.1)
    >>> loss = sw.Population(sw.InContextRegression(np.eye(2), 10))
    >>> print(sw.save(sw.descend(model, loss, rate=0.05, steps=20, progress=False), "run.nc"))
    run.nc
    """
    return write_bytes(path, to_bytes(trajectory))


@checked
def to_bytes(trajectory: xr.Dataset) -> bytes:
    """Return a trajectory as the bytes of the file that `save` writes, for data that go elsewhere.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.

    **Returns:** the content of a netCDF file.

    **Example:**

    >>> import xarray as xr
    >>> content = sw.trajectory.to_bytes(xr.Dataset({"loss": ("step", [1.0, 0.5])}))
    >>> content[1:4], content[-90:-65]
    (b'HDF', b'stepwell_checksum=sha256:')
    """
    arrays = {name: values for name, values in trajectory.variables.items() if values.size and values.ndim}
    numeric = [name for name, values in arrays.items() if values.dtype.kind in "biufc"]
    encoding = {name: {"fletcher32": True} for name in numeric}
    buffer = io.BytesIO()
    trajectory.to_netcdf(buffer, engine="h5netcdf", encoding=encoding)
    return sealed(buffer)


@checked
def load(path: str | os.PathLike, *, unverified: bool = True) -> xr.Dataset:
    """Read the trajectory that `save` wrote, into memory, if it is undamaged.

    **Arguments:**

    - `path`: the name of the file. If there is none, it is not a trajectory, or it is not as `save` left it,
      `InvalidInput` is raised.
    - `unverified`: whether a netCDF file without a checksum is read too, as other programs write them.

    **Returns:** the trajectory, equal to the one that was saved.

    **Example:**

    >>> import xarray as xr
    >>> trajectory = xr.Dataset({"loss": ("step", [1.0, 0.5])})
    >>> sw.load(sw.save(trajectory, "run.nc")).identical(trajectory)
    True
    """
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InvalidInput(f"{path} is not a file; check the name")
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {shortened(path)}; check the name") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {shortened(path)} ({why(error)})") from None
    if MARK in content or not unverified:
        verify(io.BytesIO(content), path)
    try:
        with h5py.File(io.BytesIO(content)) as file:
            dict(file.attrs)  # where this fails, h5netcdf also prints a traceback of its own
        with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as stored:
            return stored.load()
    except Exception as error:  # what HDF5 and its readers raise on a damaged file is of many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInput(f"{path} is not a netCDF trajectory ({reason}); it may be cut short") from None
