"""The index of a store: what shards say about their runs, in SQLite, so that a question opens no shard.

A shard is one row, and each of its columns another, with the values of all its runs as one blob: a million runs are a
few thousand rows, and NumPy compares the values. The index is nothing but a copy: it is brought up to date with the
files before every question, made anew where it is missing or damaged, and held in memory where it cannot be written.
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
from stepwell._util.run_names import DIGEST, value_text

from ._shard import FORMAT, file_name
from ._values import Column, Value

if TYPE_CHECKING:
    from ._reader import Summary

Result = TypeVar("Result")
Entry = tuple[str, os.stat_result, Any, str]
"""A file, its size and time, its summary or None, and what is wrong with it."""

NAME = "index.sqlite"
EARLIER = "of an earlier version of Stepwell"
"""Said of files that were written by one."""
SHARD = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.nc")
"""Names of shards, below the folder of shards."""
_SCHEMA = (
    f"CREATE TABLE shards (/* format {FORMAT} */ file TEXT PRIMARY KEY, size INTEGER, stamp TEXT, about TEXT, "
    "names BLOB, problem TEXT, crc INTEGER)",
    "CREATE TABLE columns (name TEXT, file TEXT, dtype TEXT, categories TEXT, data BLOB, crc INTEGER, "
    "PRIMARY KEY (name, file))",
)
_PAGE = 32768
"""Bytes of a page: blobs are of this order."""
_BUSY = 10.0
"""Seconds to wait for another process that writes."""
_BATCH = 16
"""Shards that are read before they are written to the index."""
_DTYPES = {"b": "|b1", "i": "<i8", "f": "<f8", "c": "<i4"}
"""Types of values in blobs; "c" are codes of categories."""
_NOT_DAMAGED = frozenset(
    getattr(sqlite3, f"SQLITE_{reason}") for reason in "BUSY LOCKED PERM READONLY IOERR CANTOPEN FULL NOLFS".split()
)
"""What SQLite answers where the index is locked, or the disk is full or cannot be written."""


class Damaged(Exception):
    """The index does not hold what it should."""


class Row(NamedTuple):
    """A shard in the index."""

    file: str
    names: np.ndarray
    common: dict[str, Value]
    columns: dict[str, str]
    """Whether each of its columns is a "field" or a "scalar"."""
    variables: dict[str, Any]
    """The layout of what was recorded: the fields of a `Variable` by name."""

    @property
    def runs(self) -> int:
        return len(self.names)


class Index:
    """The index of the store in `folder`; `read` gives the summary of a shard file, or raises `InvalidInput`."""

    def __init__(self, folder: Path, read: "Callable[[Path], Summary]"):
        self.folder = folder
        self.path = folder / NAME
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

        for _ in range(2 if self._is_usable() else 0):
            try:
                return self._on_disk(updated)
            except (sqlite3.Error, Damaged, UnicodeDecodeError) as error:  # messages of SQLite quote what is damaged
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_DAMAGED:
                    break
                self.discard()
        try:
            self._memory = self._memory or self.copy()
            return updated(self._memory)
        except (sqlite3.Error, Damaged, UnicodeDecodeError):
            self._close()
            self._memory = _empty()
            return updated(self._memory)

    def _is_usable(self) -> bool:
        """Whether there may be a file; a link may lead out of the store."""
        return self.folder.is_dir() and not self.path.is_symlink()

    def note(self, file: str, made: "Summary | None", problem: str = "") -> None:
        """Enter a shard that was written, or that was found damaged, so that its runs count as missing.

        If that fails, it is entered with the next question.
        """
        with contextlib.suppress(sqlite3.Error, Damaged, OSError):
            entry = file, os.lstat(self.folder / "shards" / file), made, problem
            if self._memory is not None:
                _insert(self._memory, [entry])
            if self._is_usable():
                self._on_disk(lambda connection: _insert(connection, [entry]))

    def discard(self) -> None:
        """Remove the index; the next question makes it anew."""
        for ending in ("-wal", "-shm", "-journal", ""):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}{ending}")

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files that may be shards, by their names below the folder of shards. Links are not followed."""
        for folder in _entries(self.folder / "shards"):
            for entry in _entries(folder.path):
                file = f"{folder.name}/{entry.name}"
                if SHARD.fullmatch(file) and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        yield file, entry.stat(follow_symlinks=False)

    def _on_disk(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        with contextlib.closing(sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None)) as connection:
            # What a power cut spoils has a wrong checksum, and is made anew.
            connection.execute("PRAGMA synchronous = OFF")
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.execute(f"PRAGMA page_size = {_PAGE}")
                with _transaction(connection):
                    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                        _create(connection)
            _check_schema(connection)
            return work(connection)

    def copy(self) -> sqlite3.Connection:
        """The index of the file in memory, empty if it cannot be read; the file is not touched."""
        made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            made.deserialize(self.path.read_bytes())
            _check_schema(made)
            return made
        except (OSError, sqlite3.Error, Damaged, UnicodeDecodeError, MemoryError):  # the last: it is empty
            made.close()
            return _empty()

    def _update(self, connection: sqlite3.Connection) -> None:
        """Enter files that are not in the index, and drop entries whose file is gone."""
        there = dict(self.files())
        known = {file: rest for file, *rest in connection.execute("SELECT file, size, stamp FROM shards")}
        if gone := [file for file in known if file not in there]:
            with _transaction(connection):
                for file in gone:
                    _delete(connection, file)
        fresh = [file for file, facts in there.items() if known.get(file) != [facts.st_size, _stamp(facts)]]
        for start in range(0, len(fresh), _BATCH):
            entries = map(self._entry, fresh[start : start + _BATCH])
            _insert(connection, [entry for entry in entries if entry is not None])

    def _entry(self, file: str) -> Entry | None:
        path = self.folder / "shards" / file
        try:
            facts = os.lstat(path)
        except OSError:
            return None
        try:
            made = self._read(path)
            if file_name(made.names) != file:
                raise InvalidInput(f"{file} has the runs of {file_name(made.names)}; it was renamed")
            return file, facts, made, ""
        except InvalidInput as error:
            return file, facts, None, str(error)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """What is in a folder that is no link."""
    try:
        if os.path.islink(folder):
            return []
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


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


def problems(connection: sqlite3.Connection) -> dict[str, str]:
    """What is wrong with files that cannot be used."""
    return {file: problem for file, *_, problem in _read(connection, "shards ORDER BY file") if problem}


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
    crc = 0
    for value in entry:
        crc = zlib.crc32(value if isinstance(value, bytes) else repr(value).encode(), crc)
    return crc


def _insert(connection: sqlite3.Connection, entries: list[Entry]) -> None:
    """Enter shards, in place of older entries of the same files."""
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
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _create(connection: sqlite3.Connection) -> None:
    for statement in (*_SCHEMA, "CREATE INDEX columns_of ON columns (file)"):
        connection.execute(statement)


def _empty() -> sqlite3.Connection:
    """An index in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _create(connection)
    return connection


def _check_schema(connection: sqlite3.Connection) -> None:
    """The tables are ours, and nothing else is there that would be run."""
    asked = "SELECT sql FROM sqlite_master WHERE type != 'index' ORDER BY name DESC"
    if tuple(sql for (sql,) in connection.execute(asked)) != _SCHEMA:
        raise Damaged("other tables")


def _stamp(facts: os.stat_result) -> str:
    """What changes when a file is replaced by another of the same size."""
    return str(facts.st_mtime_ns)
