"""What chosen runs recorded, as one lazy data set: arrays are read from the shards when their values are needed."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.run_names import hexadecimal

from . import _reader
from ._query import Chosen, Piece
from ._reader import Variable
from ._values import configuration_text

Failed = Callable[[str, InvalidInput], None]  # called with the file of a shard that is damaged


class _Stacked(BackendArray):
    """An array over the chosen runs of several shards, which are opened as an index needs them."""

    def __init__(self, folder: Path, pieces: Sequence[Piece], name: str, variable: Variable, failed: Failed):
        self._folder, self._pieces, self._name, self._failed = folder, pieces, name, failed
        self._ends = np.cumsum([len(piece.rows) for piece in pieces])
        self.shape = (int(self._ends[-1]), *variable.shape[1:])
        self.dtype = np.dtype(variable.dtype)

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        first, inner = key[0], key[1:]
        single = isinstance(first, int | np.integer)
        runs = np.atleast_1d(np.arange(self.shape[0])[first])
        lengths = zip(self.shape[1:], inner, strict=True)
        shape = [np.arange(length)[one].size for length, one in lengths if not isinstance(one, int | np.integer)]
        size = math.prod([len(runs), *shape]) * self.dtype.itemsize
        require_memory(size, what=f"the array {self._name}", instead="choose fewer runs or points")
        values = np.empty((len(runs), *shape), self.dtype)
        owner = np.searchsorted(self._ends, runs, side="right")
        for number in np.unique(owner).tolist():
            there = np.flatnonzero(owner == number)
            piece = self._pieces[number]
            rows = piece.rows[runs[there] - (self._ends[number] - len(piece.rows))]
            low, high = int(rows.min()), int(rows.max()) + 1
            block = _values(self._folder, piece.shard.file, self._name, self._failed, slice(low, high))[rows - low]
            for axis, one in reversed([*enumerate(inner, 1)]):  # each by itself; a number takes its axis away
                block = block[(slice(None),) * axis + (one,)]
            values[there] = block
        return values[0] if single else values


def _values(folder: Path, file: str, name: str, failed: Failed, rows: Any = ...) -> np.ndarray:
    try:
        with _reader.reading(folder / "shards" / file) as content:
            return _reader.native(content[name], rows)
    except InvalidInput as error:
        failed(file, error)
        raise


def dataset(folder: Path, chosen: Chosen, wanted: Sequence[str] | None, failed: Failed) -> xr.Dataset:
    """The runs chosen, stacked along `run`, with fields and scalars as coordinates."""
    made = xr.Dataset()
    if chosen.pieces:
        shared = _shared(chosen.pieces, wanted)
        for name, variable in shared.items():
            if "run" in variable.dims:
                values = indexing.LazilyIndexedArray(_Stacked(folder, chosen.pieces, name, variable, failed))
            else:
                values = _values(folder, chosen.pieces[0].shard.file, name, failed)
            made[name] = xr.Variable(variable.dims, values, variable.notes)
        made = made.set_coords([name for name in shared if name in made.dims])
    taken = {"run", *map(str, made.variables), *map(str, made.dims)}
    common = {}
    coordinates: dict[str, Any] = {"name": ("run", np.array(hexadecimal(chosen.names()), "U32"))}
    for name, kind in chosen.kinds.items():
        column = chosen.column(name)
        label = f"{kind}_{name}" if name in taken else name
        if kind == "field" and len(column) and (column.values == column.values[0]).all():
            common[name] = column.value(0)
            coordinates[label] = column[:1].labels()[0]
        else:
            coordinates[label] = "run", column.labels()
    return made.assign_coords(coordinates).assign_attrs(configuration=configuration_text(common))


def _shared(pieces: Sequence[Piece], wanted: Sequence[str] | None) -> dict[str, Variable]:
    """The arrays to stack, if they have one shape in all shards, and what all runs share is the same."""
    every = [{name: Variable(**one) for name, one in piece.shard.variables.items()} for piece in pieces]
    known = sorted({name for layout in every for name in layout})
    for name in wanted or ():
        if name not in known:
            raise InvalidInput(f"no run recorded {name!r}; there are {', '.join(known) or 'no arrays'}")
    chosen = known if wanted is None else list(wanted)
    axes = {axis for layout in every for name in chosen if name in layout for axis in layout[name].dims}
    chosen = [*chosen, *sorted(axes.intersection(known).difference(chosen))]
    for name in chosen:
        if any(_form(layout.get(name)) != _form(every[0].get(name)) for layout in every):
            raise InvalidInput(
                f"{name} is not of one shape or not the same in all of these runs; choose runs that agree, such as by "
                f"model=… or steps=…, or arrays that do, by variables=[…] of {', '.join(known)}"
            )
    return {name: every[0][name] for name in chosen}


def _form(variable: Variable | None) -> Any:
    if variable is None:
        return None
    inner = variable.shape[1:] if "run" in variable.dims else variable.shape
    return variable.dims, inner, variable.dtype, variable.sha256
