"""What chosen runs recorded, as one lazy data set: arrays are read from the shards when their values are needed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.run_names import hexadecimal, value_text

from . import _reader
from ._column import Column
from ._configuration import checked_text
from ._reader import Variable
from ._table import Chosen, Piece

Failed = Callable[[str, InvalidInput], None]
"""Told of a shard that is damaged, by its file."""


class _Stacked(BackendArray):
    """An array over the chosen runs of several shards; an index of it opens those shards that it concerns."""

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
        require_memory(
            int(np.prod([len(runs), *shape], dtype=object)) * self.dtype.itemsize,
            what=f"the array {self._name}",
            instead="choose fewer runs or points",
        )
        values = np.empty((len(runs), *shape), self.dtype)
        owner = np.searchsorted(self._ends, runs, side="right")
        for number in np.unique(owner).tolist():
            there = np.flatnonzero(owner == number)
            piece = self._pieces[number]
            rows = piece.rows[runs[there] - (self._ends[number] - len(piece.rows))]
            values[there] = self._of_shard(piece, rows, inner)
        return values[0] if single else values

    def _of_shard(self, piece: Piece, rows: np.ndarray, inner: tuple[Any, ...]) -> np.ndarray:
        path = self._folder / "shards" / piece.shard.file
        try:
            with _reader.reading(path) as file:
                array = _reader.dataset(file, self._name, path.stat().st_size)
                if array.shape[1:] != self.shape[1:] or rows.max() >= array.shape[0]:
                    raise InvalidInput(f"{path} is not what it was when it was indexed")
                low, high = int(rows.min()), int(rows.max()) + 1
                block = _reader.native(array, slice(low, high))
        except InvalidInput as error:
            self._failed(piece.shard.file, error)
            raise
        return _outer(block[rows - low], (slice(None), *inner))


def _outer(array: np.ndarray, key: tuple[Any, ...]) -> np.ndarray:
    """Index each axis by itself; numbers take their axis away."""
    for axis, one in reversed(list(enumerate(key))):
        array = array[(slice(None),) * axis + (one,)]
    return array


def dataset(
    folder: Path,
    chosen: Chosen,
    layouts: dict[int, dict[str, Any]],
    wanted: Sequence[str] | None,
    failed: Failed,
) -> xr.Dataset:
    """The runs chosen, stacked along `run`, with fields and scalars as coordinates."""
    made = xr.Dataset()
    if chosen.pieces:
        shared = _shared(layouts, [piece.shard.id for piece in chosen.pieces], wanted)
        for name, variable in shared.items():
            if "run" in variable.dims:
                lazy = indexing.LazilyIndexedArray(_Stacked(folder, chosen.pieces, name, variable, failed))
                made[name] = xr.Variable(variable.dims, lazy, variable.notes)
            else:
                made[name] = xr.Variable(variable.dims, _values(folder, chosen, name, failed), variable.notes)
        made = made.set_coords([name for name in shared if name in made.dims])
    taken = {"run", *map(str, made.variables), *map(str, made.dims)}
    common = {}
    coordinates: dict[str, Any] = {"name": ("run", np.array(hexadecimal(chosen.names()), "U32"))}
    for name, kind in chosen.kinds.items():
        column = chosen.column(name)
        label = f"{kind}_{name}" if name in taken else name
        alike = len(column) and column.values[0] == column.values[-1] and (column.values == column.values[0]).all()
        if kind == "field" and alike:
            common[name] = column.value(0)
            coordinates[label] = labels(column[:1])[0]
        else:
            coordinates[label] = "run", labels(column)
    return made.assign_coords(coordinates).assign_attrs(configuration=checked_text(common))


def labels(column: Column) -> np.ndarray:
    """The values as numbers or texts; of categories that are not all texts the JSON."""
    if column.categories is None:
        return column.values
    used = np.unique(column.values)
    texts = [column.categories[code] for code in used.tolist()]
    if not all(isinstance(text, str) for text in texts):
        texts = ["" if text is None else value_text(text) for text in texts]
    return np.array(texts or [""], str)[np.searchsorted(used, column.values)]


def _values(folder: Path, chosen: Chosen, name: str, failed: Failed) -> np.ndarray:
    """An array that all runs share, from the first shard."""
    file = chosen.pieces[0].shard.file
    path = folder / "shards" / file
    try:
        with _reader.reading(path) as content:
            return _reader.native(_reader.dataset(content, name, path.stat().st_size))
    except InvalidInput as error:
        failed(file, error)
        raise


def _shared(
    layouts: dict[int, dict[str, Any]], shards: Sequence[int], wanted: Sequence[str] | None
) -> dict[str, Variable]:
    """The arrays to stack, if they have one shape in all shards, and what all runs share is the same."""
    every = [_variables(layouts[number]) for number in shards]
    known = sorted({name for layout in every for name in layout})
    for name in wanted or ():
        if name not in known:
            raise InvalidInput(f"no run recorded {name!r}; there are {', '.join(known) or 'no arrays'}")
    chosen = known if wanted is None else list(wanted)
    axes = {axis for layout in every for name in chosen if name in layout for axis in layout[name].dims}
    chosen = [*chosen, *sorted(axes.intersection(known).difference(chosen))]
    shared = {}
    for name in chosen:
        forms = {_form(layout.get(name)) for layout in every}
        if len(forms) > 1:
            raise InvalidInput(
                f"{name} is not of one shape or not the same in all of these runs; choose runs that agree, such as by "
                f"model=… or steps=…, or arrays that do, by variables=[…] of {', '.join(known)}"
            )
        shared[name] = every[0][name]
    return shared


def _variables(layout: dict[str, Any]) -> dict[str, Variable]:
    return {
        name: Variable(tuple(one["dims"]), tuple(one["shape"]), one["dtype"], one["notes"], one["sha256"])
        for name, one in layout.items()
    }


def _form(variable: Variable | None) -> Any:
    """What must be equal in all shards."""
    if variable is None:
        return None
    inner = variable.shape[1:] if "run" in variable.dims else variable.shape
    return variable.dims, inner, variable.dtype, variable.sha256
