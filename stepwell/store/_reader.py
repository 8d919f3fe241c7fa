"""Shards read from files of unknown origin: everything is checked before it is used.

The checksum comes first: HDF5 never sees a file that was altered by accident. It is no signature, and what a file says
is not believed: sizes are compared with the size of the file before anything is allocated, links and arrays that are
stored in other files are refused, and names are recomputed from the configurations.
"""

import contextlib
import hashlib
import io
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np

from stepwell._util import netcdf
from stepwell._util.errors import InvalidInput
from stepwell._util.files import why
from stepwell._util.memory import require_memory
from stepwell._util.run_names import DIGEST, digests
from stepwell._util.text import shortened

from ._column import Column
from ._configuration import MOST_RUNS, Value, check_name, parsed_configuration, parsed_json, plain
from ._index import EARLIER
from ._shard import ATTRIBUTES, AXES, FORMAT, NOTES, OWN, Shard, check_variable, value_list

if TYPE_CHECKING:
    import xarray as xr

_MOST_VARIABLES = 4096

_verified: set[tuple[int, ...]] = set()
"""Files whose checksum this process has verified, by everything that changes when they do."""


class Variable(NamedTuple):
    """A recorded array: its axes, its type, its attributes, and a hash of its values if all runs share them."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    notes: dict[str, str]
    sha256: str | None


class Summary(NamedTuple):
    """What a shard says about its runs, without what they recorded."""

    names: np.ndarray
    common: dict[str, Value]
    fields: dict[str, Column]
    scalars: dict[str, Column]
    variables: dict[str, Variable]


def open_file(path: Path) -> io.BufferedReader:
    """The file itself, if it is one: no link, folder or device."""
    try:
        # A pipe would wait for its writer without O_NONBLOCK.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        file = open(os.open(path, flags), "rb")
    except OSError as error:
        raise InvalidInput(f"cannot read {shortened(path)} ({why(error)})") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InvalidInput(f"{shortened(path)} is not a file")
    return file


@contextlib.contextmanager
def reading(path: Path, *, again: bool = False, content: bytes | None = None) -> Iterator[Any]:
    """The HDF5 file, after its checksum, which is computed once for each file and process, or `again`.

    With `content` the file is not opened: these are its bytes. Whatever goes wrong while it is read is raised as
    `InvalidInput`.
    """
    with open_file(path) if content is None else io.BytesIO(content) as file:
        key = None if content is not None else _identity(file.fileno())
        try:
            if again or key is None or key not in _verified:
                netcdf.verify(file, shortened(path))
                _verified.update(() if key is None else (key,))
            with h5py.File(file, "r") as opened:
                yield opened
        except (InvalidInput, MemoryError):
            raise
        except Exception as error:  # what HDF5 raises on a damaged or strange file is of many kinds
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InvalidInput(f"{shortened(path)} is not a shard of runs ({shortened(reason)})") from None


def _identity(descriptor: int) -> tuple[int, ...]:
    facts = os.fstat(descriptor)
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def summary(path: Path, *, again: bool = False, content: bytes | None = None) -> Summary:
    """The configurations and scalars of a shard, and the layout of its arrays, if all of it is as it should be.

    `again` and `content` are as for `reading`.
    """
    with reading(path, again=again, content=content) as file:
        try:
            return _summary(file, path.stat().st_size if content is None else len(content))
        except InvalidInput as error:
            raise InvalidInput(f"{shortened(path)} is not a shard of runs: {error}") from None


def load(path: Path) -> Shard:
    """A whole shard, in memory."""
    import xarray as xr

    made = summary(path)
    size = path.stat().st_size
    require_memory(2 * size, what=f"the shard {shortened(path)}", instead="free some memory")
    with reading(path) as file:
        arrays = {
            name: (one.dims, native(dataset(file, name, size)), one.notes) for name, one in made.variables.items()
        }
        notes = {name: _text(file, name) for name in ATTRIBUTES if name in file.attrs}
    for name, text in notes.items():
        parsed_json(name, text)
    return Shard(made.common, made.fields, made.scalars, xr.Dataset(arrays, attrs=notes))


def _summary(file: Any, size: int) -> Summary:
    version = _text(file, "stepwell_shard")
    if version == "1":
        raise InvalidInput(f"its format {version} is {EARLIER}, which described runs otherwise; this one has {FORMAT}")
    if version != FORMAT:
        raise InvalidInput(f"its attribute stepwell_shard is not {FORMAT}")
    if len(file) > _MOST_VARIABLES:
        raise InvalidInput(f"it has more than {_MOST_VARIABLES} variables")
    common = parsed_configuration(_text(file, "configuration"))
    stored = {name: dataset(file, name, size) for name in file}
    if "digest" not in stored or stored["digest"].ndim != 2:
        raise InvalidInput("it has no names of runs")
    runs = stored["digest"].shape[0]
    if not 1 <= runs <= MOST_RUNS or stored["digest"].shape[1] != DIGEST or stored["digest"].dtype != np.uint8:
        raise InvalidInput("its names of runs are not 1 or more times 16 bytes")
    names = stored.pop("digest")[...]
    columns: dict[str, dict[str, Column]] = {"field": {}, "scalar": {}}
    variables: dict[str, Variable] = {}
    sizes: dict[str, int] = {"run": runs}
    for name, array in stored.items():
        prefix, _, rest = name.partition("_")
        if prefix in columns:
            columns[prefix][check_name(prefix, rest)] = _column(array, runs)
        elif AXES in array.attrs:
            variables[name] = _variable(name, array, sizes)
    for name in stored:
        if name in variables and name in sizes and variables[name].dims != (name,):
            raise InvalidInput(f"the recorded array {name} has the name of an axis, and is not its coordinate")
        if name not in variables and name not in (*sizes, "digest_byte") and name.partition("_")[0] not in columns:
            raise InvalidInput(f"the array {shortened(name)} does not say which axes it has")
    known = [*common, *columns["field"], *columns["scalar"]]
    if len(set(known)) < len(known):
        raise InvalidInput("a field or scalar is there twice")
    for name, column in columns["field"].items():
        column.check_finite(name)
    made = digests(common, {name: column.texts() for name, column in columns["field"].items()}, runs)
    if not np.array_equal(made, names):
        raise InvalidInput("the names of its runs are not those of their configurations")
    if len(np.unique(names, axis=0)) < runs:
        raise InvalidInput("a run is there twice")
    return Summary(names, common, columns["field"], columns["scalar"], variables)


def dataset(file: Any, name: str, size: int) -> Any:
    """An array of the file that is stored in it, as numbers, and is no larger than the file of `size` bytes."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink) or not isinstance(file[name], h5py.Dataset):
        raise InvalidInput(f"{shortened(name)} is not an array of the file")
    array = file[name]
    if array.is_virtual or array.external is not None:
        raise InvalidInput(f"{shortened(name)} is stored in another file")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8 or array.shape is None or array.ndim > 16:
        raise InvalidInput(f"{shortened(name)} is not an array of numbers")
    if math.prod(map(int, array.shape)) * array.dtype.itemsize > size and not _is_bare(name, array):
        raise InvalidInput(f"{shortened(name)} has shape {array.shape}, which is more than the file holds")
    return array


def _is_bare(name: str, array: Any) -> bool:
    """Whether it is an axis without values, which is never read."""
    return AXES not in array.attrs and not name.startswith(OWN)


def _column(array: Any, runs: int) -> Column:
    if array.shape != (runs,):
        raise InvalidInput(f"a column has shape {array.shape}, and there are {runs} runs")
    values = native(array)
    if "categories" not in array.attrs:
        return Column(values)
    text = _text(array, "categories")
    made = parsed_json("categories", text)
    if not isinstance(made, list):
        raise InvalidInput("categories are not a list")
    categories = tuple(plain("a category", one) for one in made)
    if value_list(categories) != text:
        raise InvalidInput("categories are not in their canonical form")
    return Column(values, categories)


def _variable(name: str, array: Any, sizes: dict[str, int]) -> Variable:
    # The names of axes are an attribute of ours: HDF5 has them too, as references, and can crash where they are wrong.
    dims = tuple(_text(array, AXES).split())
    kind = np.dtype(bool) if _is_truth(array) else array.dtype.newbyteorder("=")
    check_variable(name, dims, kind)
    if len(dims) != array.ndim:
        raise InvalidInput(f"the recorded array {name} has {array.ndim} axes, and names of {len(dims)}")
    for axis, length in zip(dims, array.shape, strict=True):
        if sizes.setdefault(axis, length) != length:
            raise InvalidInput(f"the axis {axis} has several lengths")
    notes = {key: _text(array, key) for key in NOTES if key in array.attrs}
    hashed = None
    if "run" not in dims:
        hashed = hashlib.sha256(np.ascontiguousarray(native(array)).tobytes()).hexdigest()
    return Variable(dims, tuple(map(int, array.shape)), kind.str, notes, hashed)


def layout(data: "xr.Dataset") -> dict[str, Variable]:
    """The layout of recorded arrays that are not in a file yet, as it is read from one."""
    made = {}
    for name in sorted(map(str, data.variables)):
        variable = data.variables[name]
        dims, dtype = tuple(map(str, variable.dims)), variable.dtype.newbyteorder("=")
        notes = {key: text for key, text in variable.attrs.items() if key in NOTES and isinstance(text, str)}
        hashed = None
        if "run" not in dims:
            values = np.ascontiguousarray(variable.values.astype(dtype))
            hashed = hashlib.sha256(values.tobytes()).hexdigest()
        made[name] = Variable(dims, tuple(variable.shape), dtype.str, notes, hashed)
    return made


def native(array: Any, key: Any = ...) -> np.ndarray:
    """Values of an array of the file, in the byte order of the machine; truth values as such."""
    values = array[key]
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    if not _is_truth(array):
        return values
    if not np.isin(values, (0, 1)).all():
        raise InvalidInput("a boolean is neither 0 nor 1")
    return values.astype(bool)


def _is_truth(array: Any) -> bool:
    return array.dtype == np.int8 and "dtype" in array.attrs and _plain_text(array.attrs["dtype"]) == "bool"


def _text(thing: Any, key: str) -> str:
    if key not in thing.attrs:
        raise InvalidInput(f"the attribute {key} is missing")
    return _plain_text(thing.attrs[key])


def _plain_text(value: Any) -> str:
    if isinstance(value, bytes | np.bytes_):
        value = bytes(value).decode("utf-8", errors="replace")
    return value if isinstance(value, str) else ""
