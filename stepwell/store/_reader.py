"""Shards read from their files.

The checksum comes first: HDF5, which can crash on damaged files, never sees one that was altered by accident.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np

from stepwell._util import netcdf
from stepwell._util.errors import InvalidInput
from stepwell._util.files import why
from stepwell._util.memory import require_memory
from stepwell._util.text import shortened

from ._index import EARLIER
from ._shard import AXES, FORMAT, PROVENANCE, Shard, notes_of
from ._values import Column, Value

if TYPE_CHECKING:
    import xarray as xr

_verified: set[tuple[int, ...]] = set()
"""Files whose checksum this process has verified, by everything that changes when they do."""


class Variable(NamedTuple):
    """A recorded array: its axes, its type, its attributes, and a hash of its values if all runs share them."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    notes: dict[str, str]
    sha256: str | None

    @classmethod
    def of(cls, dims: Any, array: Any, dtype: np.dtype, attributes: Any) -> "Variable":
        """The layout of an array of xarray or HDF5; its values are read if all runs share them."""
        hashed = None if "run" in dims else hashlib.sha256(np.ascontiguousarray(array[...], dtype).tobytes())
        shape = tuple(map(int, array.shape))
        return cls(tuple(dims), shape, dtype.str, notes_of(attributes), hashed and hashed.hexdigest())


class Summary(NamedTuple):
    """What a shard says about its runs, without what they recorded."""

    names: np.ndarray
    common: dict[str, Value]
    fields: dict[str, Column]
    scalars: dict[str, Column]
    variables: dict[str, Variable]

    @classmethod
    def of(cls, shard: Shard) -> "Summary":
        """The summary of a shard that is not in a file yet."""
        return cls(shard.names, shard.common, shard.fields, shard.scalars, layout(shard.data))


def layout(data: "xr.Dataset") -> dict[str, Variable]:
    """The layout of recorded arrays, as it is read from a file."""
    every = {str(name): one for name, one in data.variables.items()}
    return {
        name: Variable.of(every[name].dims, every[name].values, every[name].dtype.newbyteorder("="), every[name].attrs)
        for name in sorted(every)
    }


@contextlib.contextmanager
def reading(path: Path, *, again: bool = False) -> Iterator[Any]:
    """The HDF5 file, after its checksum, which is computed once for each file and process, or `again`.

    Whatever goes wrong while it is read is raised as `InvalidInput`.
    """
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            key = facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
            if again or key not in _verified:
                netcdf.verify(file, shortened(path))
                _verified.add(key)
            with h5py.File(file, "r") as opened:
                yield opened
    except (InvalidInput, MemoryError):
        raise
    except FileNotFoundError as error:
        raise InvalidInput(f"cannot read {shortened(path)} ({why(error)})") from None
    except Exception as error:  # what HDF5 raises on a damaged or strange file is of many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInput(f"{shortened(path)} is not a shard of runs ({shortened(reason)})") from None


def summary(path: Path, *, again: bool = False) -> Summary:
    """The configurations and scalars of a shard, and the layout of its arrays."""
    with reading(path, again=again) as file:
        try:
            return _summary(file)
        except InvalidInput as error:
            raise InvalidInput(f"{shortened(path)} is not a shard of runs: {error}") from None


def _summary(file: Any) -> Summary:
    version = file.attrs.get("stepwell_shard")
    if version == "1":
        raise InvalidInput(f"its format {version} is {EARLIER}, which described runs otherwise; this one has {FORMAT}")
    if version != FORMAT:
        raise InvalidInput(f"its attribute stepwell_shard is not {FORMAT}")
    common, names = json.loads(file.attrs["configuration"]), file["digest"][...]
    columns: dict[str, dict[str, Column]] = {"field": {}, "scalar": {}}
    variables: dict[str, Variable] = {}
    for name, array in file.items():
        prefix, _, rest = name.partition("_")
        if prefix in columns:
            categories = json.loads(array.attrs["categories"]) if "categories" in array.attrs else None
            columns[prefix][rest] = Column(native(array), None if categories is None else tuple(categories))
        elif AXES in array.attrs:
            dtype = np.dtype(bool) if _is_boolean(array) else array.dtype.newbyteorder("=")
            variables[name] = Variable.of(array.attrs[AXES].split(), array, dtype, array.attrs)
    return Summary(names, common, columns["field"], columns["scalar"], variables)


def load(path: Path) -> Shard:
    """A whole shard, in memory."""
    import xarray as xr

    made = summary(path)
    require_memory(2 * path.stat().st_size, what=f"the shard {shortened(path)}", instead="free some memory")
    with reading(path) as file:
        arrays = {name: (one.dims, native(file[name]), one.notes) for name, one in made.variables.items()}
        attributes = {PROVENANCE: file.attrs[PROVENANCE]} if PROVENANCE in file.attrs else {}
        return Shard(made.common, made.fields, made.scalars, xr.Dataset(arrays, attrs=attributes))


def native(array: Any, key: Any = ...) -> np.ndarray:
    """Values of an array of the file, in the byte order of the machine; booleans as such."""
    values = array[key]
    return values.astype(bool if _is_boolean(array) else values.dtype.newbyteorder("="), copy=False)


def _is_boolean(array: Any) -> bool:
    return array.dtype == np.int8 and array.attrs.get("dtype") == "bool"
