"""Runs of equal shape, computed together and kept in one file."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import DIGEST, digests, first_of_each, value_text
from stepwell._util.text import shown

from ._values import RESERVED, Column, Value, check_name, configuration_text, plain

if TYPE_CHECKING:
    import xarray as xr

FORMAT = "2"  # version of the layout of files
AXES = "stepwell_axes"  # attribute of a recorded array: the names of its axes
PROVENANCE = "provenance"
"""Attribute of the recorded data that is stored: JSON of how it was made, where that is more than the configuration."""
NOTES = ("units", "long_name")  # attributes of recorded arrays that are stored
_OWN = ("digest", "field_", "scalar_")  # how the names of variables begin that are not recorded data


@dataclass(frozen=True, eq=False, init=False)
class Shard:
    """Runs of equal shape, with their configurations, their scalars and what they recorded.

    **Arguments:**

    - `common`: the fields of the configuration that all runs share.
    - `fields`: those that differ, an array, a list or a `Column` over `run` by name.
    - `scalars`: outcomes of each run, such as `final_loss`, in the same form; numbers may be NaN.
    - `data`: an `xarray.Dataset` of what was recorded, with the dimension `run` in the same order. Variables without
      it, such as the coordinate `step`, are the same for all. None if nothing was recorded.

    **Example:**

    >>> import xarray as xr
    >>> from stepwell.store import Shard
    >>> loss = xr.Dataset({"loss": (("run", "step"), np.array([[1.0, 0.5], [1.0, 0.4]]))})
    >>> shard = Shard({"model.kind": "merged"}, {"seed": [0, 1]}, {"final_loss": [0.5, 0.4]}, loss)
    >>> len(shard), shard.names[1].tobytes().hex()
    (2, 'cd6e21662476881fdcccb0f5ae13ea4f')
    """

    common: dict[str, Value]
    fields: dict[str, Column]
    scalars: dict[str, Column]
    data: "xr.Dataset"

    @checked
    def __init__(
        self, common: dict[str, Any], fields: dict[str, Any], scalars: dict[str, Any] | None = None, data: Any = None
    ):
        import xarray as xr

        if not isinstance(data, xr.Dataset | None):
            raise InvalidInput(f"data is {shown(data)}; it must be a Dataset of xarray, or None")
        recorded = xr.Dataset() if data is None else data
        parts = {
            "common": {check_name("field", name): plain(name, value) for name, value in common.items()},
            "fields": {check_name("field", name): Column.of(each, name=name) for name, each in fields.items()},
            "scalars": {
                check_name("scalar", name): Column.of(each, name=name) for name, each in (scalars or {}).items()
            },
            "data": recorded.drop_vars("run") if "run" in recorded.coords else recorded,
        }
        for name, part in parts.items():
            object.__setattr__(self, name, part)
        self._check()

    def _check(self) -> None:
        columns = [*self.common, *self.fields, *self.scalars]
        repeated = sorted({name for name in columns if columns.count(name) > 1})
        if repeated:
            raise InvalidInput(f"{', '.join(repeated)} is given twice, among common, fields and scalars; give it once")
        lengths = {name: len(column) for name, column in (self.fields | self.scalars).items()}
        if "run" in self.data.sizes:
            lengths["data"] = self.data.sizes["run"]
        if len(set(lengths.values())) != 1 or 0 in lengths.values():
            raise InvalidInput(f"numbers of runs are {lengths}; all must be the same, and 1 at least")
        for name, column in self.fields.items():
            column.check_finite(name)
        for name, variable in self.data.variables.items():
            _check_variable(name, variable.dims, variable.dtype)
        if not first_of_each(self.names).all():
            raise InvalidInput("two runs have the same configuration; each may be in a shard once")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> np.ndarray:
        """The names of the runs, (run, 16) bytes, made of their configurations."""
        columns = (self.fields | self.scalars).values()
        runs = next((len(column) for column in columns), self.data.sizes.get("run", 1))
        return digests(self.common, {name: column.texts() for name, column in self.fields.items()}, runs)

    @property
    def file_name(self) -> str:
        """`ab/ab….nc`: the same set of runs has the same file."""
        return file_name(self.names)

    @checked
    def take(self, rows: np.ndarray) -> "Shard":
        """Return some of the runs, by their numbers, counted from 0."""
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not np.isin(rows, np.arange(len(self))).all():
            raise InvalidInput(f"rows are {shown(rows)}; they must be numbers of runs, below {len(self)}")
        return Shard(
            self.common,
            {name: column[rows] for name, column in self.fields.items()},
            {name: column[rows] for name, column in self.scalars.items()},
            self.data.isel(run=rows) if "run" in self.data.dims else self.data,
        )

    def to_bytes(self) -> bytes:
        """Return the content of the file: netCDF with a checksum."""
        from stepwell._util import netcdf  # HDF5 takes a while to import
        from stepwell._util.versions import versions

        variables: dict[str, Any] = {"digest": (("run", "digest_byte"), np.ascontiguousarray(self.names), {})}
        for prefix, columns in (("field_", self.fields), ("scalar_", self.scalars)):
            for name, column in columns.items():
                notes = {} if column.categories is None else {"categories": value_text(list(column.categories))}
                variables[prefix + name] = ("run",), column.values, notes
        for name, variable in self.data.variables.items():
            values = np.asarray(variable.values, variable.dtype.newbyteorder("="), order="C")
            notes = {AXES: " ".join(map(str, variable.dims)), **notes_of(variable.attrs)}
            variables[str(name)] = variable.dims, values, notes
        return netcdf.to_bytes(
            variables,
            {
                "stepwell_shard": FORMAT,
                "configuration": configuration_text(self.common),
                "versions": json.dumps(versions()),
                **{name: text for name, text in self.data.attrs.items() if name == PROVENANCE},
            },
        )


def file_name(names: np.ndarray) -> str:
    """The file of these runs, below the folder of shards."""
    rows = sorted(np.ascontiguousarray(names).view(f"V{DIGEST}").ravel().tolist())
    stem = hashlib.sha256(b"".join(rows)).hexdigest()[:32]
    return f"{stem[:2]}/{stem}.nc"


def notes_of(attributes: Any) -> dict[str, str]:
    return {key: attributes[key] for key in NOTES if key in attributes and isinstance(attributes[key], str)}


def _check_variable(name: Any, dimensions: Any, dtype: np.dtype) -> None:
    for one in (name, *dimensions):
        if not isinstance(one, str) or not one.isascii() or not one.isidentifier() or len(one) > 64:
            raise InvalidInput(f"{shown(one)} cannot be the name of a recorded array or axis; take letters, digits, _")
        if one.startswith(_OWN) or one != "run" and one in RESERVED or name == "run":
            raise InvalidInput(f"{one} cannot be the name of a recorded array or axis; the store has such names itself")
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise InvalidInput(f"the recorded array {name} is of {dtype}; it must be of numbers of at most 64 bits")
    if len(set(dimensions)) < len(dimensions):
        raise InvalidInput(f"the recorded array {name} has the axes {dimensions}; each may be there once")
    if "run" in dimensions[1:] or (dimensions != (name,) and name in dimensions):
        raise InvalidInput(f"the recorded array {name} has the axes {dimensions}; run must be the first, its own none")
