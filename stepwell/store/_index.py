"""The index of a store: what shards say about their runs, in SQLite, so that a question opens no shard.

A shard is one row, and each of its columns another, with the values of all its runs as one blob: a million runs are a
few thousand rows, and NumPy compares the values. The index is nothing but a copy: it is brought up to date with the
files before every question, rebuilt where it is missing or damaged, and held in memory where it cannot be written.
Files are known by name, size and time of change; a file of which one differs is verified and read again. Times are
compared for equality only: clocks differ between machines, and jump.
"""

import contextlib
import json
import os
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.files import why
from stepwell._util.run_names import DIGEST, value_text
from stepwell._util.text import shortened

from ._shard import FORMAT
from ._values import Column, Value

if TYPE_CHECKING:
    from ._reader import Summary

Result = TypeVar("Result")
Entry = tuple[str, os.stat_result, Any, str]  # a file, its size and time, its summary or None, and what is wrong
NAME = "index.sqlite"
EARLIER = "of an earlier version of Stepwell"  # said of files that were written by one
SHARD = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.nc")  # names of shards, below the folder of shards
_SCHEMA = (
    "PRAGMA synchronous = OFF",  # what a power cut spoils has a wrong checksum, and is rebuilt
    "PRAGMA page_size = 32768",  # blobs are of this order
    "CREATE TABLE IF NOT EXISTS shards (file TEXT PRIMARY KEY, size INTEGER, stamp TEXT, about TEXT, names BLOB, "
    "problem TEXT, crc INTEGER)",
    "CREATE TABLE IF NOT EXISTS columns (name TEXT, file TEXT, dtype TEXT, categories TEXT, data BLOB, crc INTEGER, "
    "PRIMARY KEY (name, file))",
    "CREATE INDEX IF NOT EXISTS columns_of ON columns (file)",
)
_BUSY = 10.0  # seconds to wait for another process that writes
_BATCH = 16  # shards that are read before they are written to the index
_DTYPES = {"b": "|b1", "i": "<i8", "f": "<f8", "c": "<i4"}  # types of values in blobs; "c" are codes of categories
_NOT_DAMAGED = frozenset(
    getattr(sqlite3, f"SQLITE_{reason}") for reason in "BUSY LOCKED PERM READONLY IOERR CANTOPEN FULL NOLFS".split()
)
"""What SQLite answers where the index is locked, or the disk is full or cannot be written."""


class Damaged(Exception):
    """The index does not hold what it should."""


_FAILED = (sqlite3.Error, Damaged, UnicodeDecodeError)  # messages of SQLite quote what is damaged


class Row(NamedTuple):
    """A shard in the index."""

    file: str
    names: np.ndarray
    common: dict[str, Value]
    columns: dict[str, str]  # whether each of its columns is a "field" or a "scalar"
    variables: dict[str, Any]  # the layout of what was recorded: the fields of a `Variable` by name

    @property
    def runs(self) -> int:
        return len(self.names)


class Index:
    """The index of the store in `folder`; `read` gives the summary of a shard file, or raises `InvalidInput`."""

    def __init__(self, folder: Path, read: "Callable[[Path], Summary]"):
        self.folder, self.path = folder, folder / NAME
        self._read = read
        self._memory: sqlite3.Connection | None = None

    def _close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = None

    __del__ = _close

    def ask(self, question: Callable[[sqlite3.Connection], Result]) -> Result:
        """The answer of `question(connection)`, for an index that is up to date with the files."""

        def updated(connection: sqlite3.Connection) -> Result:
            self._update(connection)
            return question(connection)

        for _ in range(2 if self.folder.is_dir() else 0):
            try:
                return self._on_disk(updated)
            except _FAILED as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_DAMAGED:
                    break
                self.discard()
        try:
            self._memory = self._memory or self.copy()
            return updated(self._memory)
        except _FAILED:
            self._close()
            self._memory = _connected(":memory:")
            return updated(self._memory)

    def note(self, file: str, made: "Summary | None", problem: str = "") -> None:
        """Enter a shard that was written, or that was found damaged, so that its runs count as missing.

        If that fails, it is entered with the next question.
        """
        with contextlib.suppress(sqlite3.Error, Damaged, OSError):
            entry = file, os.lstat(self.folder / "shards" / file), made, problem
            if self._memory is not None:
                _insert(self._memory, [entry])
            self._on_disk(lambda connection: _insert(connection, [entry]))

    def discard(self) -> None:
        """Remove the index; the next question makes it anew."""
        for ending in ("-wal", "-shm", "-journal", ""):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}{ending}")

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files that may be shards, by their names below the folder of shards."""
        for folder in _entries(self.folder / "shards"):
            for entry in _entries(folder.path):
                file = f"{folder.name}/{entry.name}"
                if SHARD.fullmatch(file) and entry.is_file(follow_symlinks=False):
                    with _readable(entry.path):
                        yield file, entry.stat(follow_symlinks=False)

    def _on_disk(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with contextlib.closing(_connected(self.path)) as connection:
            return work(connection)

    def copy(self) -> sqlite3.Connection:
        """The index of the file in memory, empty if it cannot be read; the file is not touched."""
        made = _connected(":memory:")
        try:
            made.deserialize(self.path.read_bytes())
            made.execute("SELECT * FROM shards LIMIT 1")
            return made
        except (OSError, *_FAILED, MemoryError):  # the last: it is empty
            made.close()
            return _connected(":memory:")

    def _update(self, connection: sqlite3.Connection) -> None:
        there = dict(self.files())
        known = {file: rest for file, *rest in connection.execute("SELECT file, size, stamp, problem FROM shards")}
        if gone := [file for file in known if file not in there]:
            with _transaction(connection):
                for file in gone:
                    _delete(connection, file)
        # What could not be read is tried again: permissions and disks are mended without a new time of change.
        fresh = [file for file, facts in there.items() if known.get(file) != [facts.st_size, _stamp(facts), ""]]
        for start in range(0, len(fresh), _BATCH):
            entries = [self._entry(file, there[file]) for file in fresh[start : start + _BATCH]]
            _insert(connection, [entry for entry in entries if entry is not None])

    def _entry(self, file: str, facts: os.stat_result) -> Entry | None:
        path = self.folder / "shards" / file
        try:
            return file, facts, self._read(path), ""
        except InvalidInput as error:
            return (file, facts, None, str(error)) if os.path.lexists(path) else None  # removed meanwhile


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder, if it is one."""
    with _readable(folder), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


@contextlib.contextmanager
def _readable(path: str | Path) -> Iterator[None]:
    """What is gone, or is no folder, is passed over; what cannot be read is an error: its runs would be left out."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise InvalidInput(f"cannot read {shortened(path)} of the store ({why(error)}); make it readable") from None


def rows(connection: sqlite3.Connection, *, strict: bool = True) -> list[Row]:
    """All shards that can be used, in the order of their names. A store of an earlier version is refused if `strict`:
    its runs have other names, and would silently count as missing."""
    made = []
    for file, _, _, about, names, problem in _read(connection, "shards ORDER BY file"):
        if strict and EARLIER in problem:
            raise InvalidInput(f"{problem}; choose another store, or remove this one")
        if not problem:
            made.append(Row(file, np.frombuffer(names, np.uint8).reshape(-1, DIGEST), *json.loads(about)))
    return made


def names_in(shards: list[Row]) -> np.ndarray:
    """The names of all runs of some shards, (run, 16) bytes."""
    return np.concatenate([np.zeros((0, DIGEST), np.uint8), *(shard.names for shard in shards)])


def problems(connection: sqlite3.Connection) -> dict[str, str]:
    """What is wrong with files that cannot be used."""
    return {file: problem for file, *_, problem in _read(connection, "shards WHERE problem != '' ORDER BY file")}


def columns(connection: sqlite3.Connection, name: str) -> dict[str, Column]:
    """A column of all shards that have it, by the file of the shard."""
    made = {}
    for _, file, dtype, categories, data in _read(connection, "columns WHERE name = ?", name):
        values = np.frombuffer(data, _DTYPES[dtype])
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        made[file] = Column(values, tuple(json.loads(categories)) if dtype == "c" else None)
    return made


def _read(connection: sqlite3.Connection, which: str, *values: str) -> Iterator[list[Any]]:
    """Rows of a table, each compared with its checksum: SQLite has none."""
    for *entry, crc in connection.execute(f"SELECT * FROM {which}", values):
        if _crc(entry) != crc:
            raise Damaged(which)
        yield entry


def _crc(entry: Iterable[Any]) -> int:
    crc = zlib.crc32(FORMAT.encode())
    for value in entry:
        crc = zlib.crc32(value if isinstance(value, bytes) else repr(value).encode(), crc)
    return crc


def _insert(connection: sqlite3.Connection, entries: list[Entry]) -> None:
    with _transaction(connection):
        for file, facts, made, problem in entries:
            _delete(connection, file)
            about, names, held = [], b"", {}
            if made is not None:
                held = made.fields | made.scalars
                kinds = {name: "field" if name in made.fields else "scalar" for name in held}
                about = [made.common, kinds, {name: one._asdict() for name, one in made.variables.items()}]
                names = np.ascontiguousarray(made.names).tobytes()
            _insert_row(connection, "shards", file, facts.st_size, _stamp(facts), json.dumps(about), names, problem)
            for name, column in held.items():
                dtype = "c" if column.categories is not None else column.values.dtype.kind
                data = column.values.astype(_DTYPES[dtype], copy=False).tobytes()
                _insert_row(connection, "columns", name, file, dtype, value_text(column.categories), data)


def _insert_row(connection: sqlite3.Connection, table: str, *entry: Any) -> None:
    places = ", ".join("?" * (len(entry) + 1))
    connection.execute(f"INSERT INTO {table} VALUES ({places})", [*entry, _crc(entry)])


def _delete(connection: sqlite3.Connection, file: str) -> None:
    for table in ("shards", "columns"):
        connection.execute(f"DELETE FROM {table} WHERE file = ?", (file,))


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One writer at a time; all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        yield


def _connected(place: str | Path) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        for statement in _SCHEMA:
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def _stamp(facts: os.stat_result) -> str:
    """What changes when a file is replaced by another of the same size."""
    return str(facts.st_mtime_ns)
