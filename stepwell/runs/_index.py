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
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from stepwell._errors import InvalidInput

from ._column import Column
from ._configuration import DIGEST, Value, value_text
from ._shard import value_list

if TYPE_CHECKING:
    from ._reader import Summary

Result = TypeVar("Result")

NAME = "index.sqlite"
SHARD = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.nc")
"""Names of shards, below the folder of shards."""
_FOLDER = re.compile("[0-9a-f]{2}")
_ASIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database."""
_SCHEMA = (
    "CREATE TABLE shards (id INTEGER PRIMARY KEY, file TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, "
    "runs INTEGER NOT NULL, common TEXT NOT NULL, variables TEXT NOT NULL, names BLOB NOT NULL, crc INTEGER NOT NULL, "
    "problem TEXT NOT NULL, stamp TEXT NOT NULL)",
    "CREATE TABLE columns (name TEXT NOT NULL, shard INTEGER NOT NULL, kind TEXT NOT NULL, dtype TEXT NOT NULL, "
    "categories TEXT NOT NULL, data BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (name, shard))",
)
_COLUMNS = "name, shard, kind, dtype, categories, data, crc"
_PAGE = 32768
"""Bytes of a page: blobs are of this order."""
_BUSY = 10.0
"""Seconds to wait for another process that writes."""
_BATCH = 16
"""Shards that are read before they are written to the index."""
_DTYPES = {"b": "|b1", "i": "<i8", "f": "<f8", "c": "<i4"}
"""Types of values in blobs; "c" are codes of categories."""
_MOUNTS = "/proc/self/mountinfo"
_NETWORK = frozenset(
    "nfs nfs4 cifs smb smbfs smb3 ncpfs afs ceph fuse.sshfs fuse.glusterfs glusterfs lustre gpfs beegfs pvfs2 orangefs "
    "9p virtiofs fuse.s3fs fuse.gcsfuse".split()
)
"""File systems whose machines share no memory, which the write-ahead log needs."""
_NOT_DAMAGED = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
    }
)
"""What SQLite answers where the place is at fault, and not the content of the file."""


_WITHOUT_LOG = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOLFS})
"""What it answers where there can be no write-ahead log, sometimes at the first write only."""


class Damaged(Exception):
    """The index does not hold what it should."""


class _Unusable(sqlite3.OperationalError):
    """The index cannot be where it should be."""

    sqlite_errorcode = sqlite3.SQLITE_CANTOPEN


class Row(NamedTuple):
    """A shard in the index."""

    id: int
    file: str
    runs: int
    common: dict[str, Value]
    names: np.ndarray


class Index:
    """The index of the store in `folder`; `read` gives the summary of a shard file, or raises `InvalidInput`."""

    def __init__(self, folder: Path, read: "Callable[[Path], Summary]"):
        self.folder = folder
        self._read = read
        self._memory: sqlite3.Connection | None = None

    @property
    def path(self) -> Path:
        return self.folder / NAME

    def ask(self, question: Callable[[sqlite3.Connection], Result]) -> Result:
        """The answer of `question(connection)`, for an index that is up to date with the files."""

        def updated(connection: sqlite3.Connection) -> Result:
            self._update(connection)
            return question(connection)

        wal = _may_share_memory(self.folder)
        for _ in range(3):
            if not self.folder.is_dir():
                break
            try:
                return self._on_disk(updated, wal=wal)
            except (sqlite3.Error, Damaged) as error:
                if _is_damage(error):
                    self.discard()
                elif wal and _code(error) in _WITHOUT_LOG:
                    wal = False
                    if _in_wal_mode(self.path):
                        self.discard()
                else:
                    break
        try:
            return updated(self._in_memory())
        except (sqlite3.Error, Damaged):
            self._memory = _empty()
            return updated(self._memory)

    def note(self, file: str, made: "Summary") -> None:
        """Enter a shard that was just written. If that fails it is entered with the next question."""
        with contextlib.suppress(sqlite3.Error, Damaged, OSError):
            facts = os.lstat(self.folder / "shards" / file)
            entry = file, facts.st_size, made, "", _stamp(facts)
            self._on_disk(lambda connection: _insert(connection, [entry]), wal=_may_share_memory(self.folder))

    def discard(self) -> None:
        """Remove the index; the next question makes it anew."""
        for path in (*(f"{self.path}{ending}" for ending in _ASIDE), self.path):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files that may be shards, by their names below the folder of shards. Links are not followed."""
        shards = self.folder / "shards"
        for folder in _entries(shards):
            if _FOLDER.fullmatch(folder.name) and folder.is_dir(follow_symlinks=False):
                for entry in _entries(shards / folder.name):
                    file = f"{folder.name}/{entry.name}"
                    if SHARD.fullmatch(file) and entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(OSError):
                            yield file, entry.stat(follow_symlinks=False)

    def _on_disk(self, work: Callable[[sqlite3.Connection], Result], *, wal: bool) -> Result:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(self.path).st_mode):
                raise _Unusable("the index is not a file")
        if _in_wal_mode(self.path) and not _may_share_memory(self.folder):
            raise Damaged("a write-ahead log on a file system without shared memory")
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None)
        try:
            _prepare(connection, wal=wal)
            return work(connection)
        finally:
            connection.close()

    def _in_memory(self) -> sqlite3.Connection:
        """An index that begins as a copy of the file, if that can be read."""
        if self._memory is not None:
            with contextlib.suppress(sqlite3.Error, Damaged):
                _check_schema(self._memory)
                return self._memory
        self._memory = self.copy()
        return self._memory

    def copy(self) -> sqlite3.Connection:
        """The index of the file in memory, empty if it cannot be read; the file is not touched."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            if stat.S_ISREG(os.lstat(self.path).st_mode):
                content = bytearray(self.path.read_bytes())
                content[18:20] = b"\1\1"  # the write-ahead log stays behind; what it holds is read from the shards
                connection.deserialize(bytes(content))
                _check_schema(connection)
                return connection
        except (OSError, sqlite3.Error, Damaged, OverflowError):
            pass
        connection.close()
        return _empty()

    def _update(self, connection: sqlite3.Connection) -> None:
        """Enter files that are not in the index, and drop entries whose file is gone."""
        there = dict(self.files())
        known = {file: rest for file, *rest in connection.execute("SELECT file, size, stamp FROM shards")}
        gone = [file for file in known if file not in there]
        fresh = []
        for file, facts in there.items():
            if file in known:
                size, stamp = known[file]
                if size == facts.st_size and stamp == _stamp(facts):
                    continue
            fresh.append(file)
        if gone:
            _delete(connection, gone)
        for start in range(0, len(fresh), _BATCH):
            rows = [row for row in map(self._entry, fresh[start : start + _BATCH]) if row is not None]
            _insert(connection, rows)

    def _entry(self, file: str) -> "tuple[str, int, Summary | None, str, str] | None":
        path = self.folder / "shards" / file
        try:
            facts = os.lstat(path)
        except OSError:
            return None
        try:
            from ._shard import file_name

            made = self._read(path)
            if file_name(made.names) != file:
                raise InvalidInput(f"{file} has the runs of {file_name(made.names)}; it was renamed")
            return file, facts.st_size, made, "", _stamp(facts)
        except InvalidInput as error:
            return file, facts.st_size, None, str(error), _stamp(facts)

    def mark(self, file: str, problem: str) -> None:
        """Note that a shard was found damaged, so that its runs count as missing."""
        with contextlib.suppress(OSError):
            facts = os.lstat(self.folder / "shards" / file)
            row = (file, facts.st_size, None, problem, _stamp(facts))
            with contextlib.suppress(sqlite3.Error, Damaged):
                if self._memory is not None:
                    _insert(self._memory, [row])
                self._on_disk(lambda connection: _insert(connection, [row]), wal=_may_share_memory(self.folder))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder that is no link."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return []
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def rows(connection: sqlite3.Connection) -> list[Row]:
    """All shards that can be used, in the order of their names."""
    made = []
    asked = "SELECT id, file, runs, common, variables, names, crc FROM shards WHERE problem = '' ORDER BY file"
    for number, file, runs, common, layout, names, crc in connection.execute(asked):
        with _well_formed(file):
            if _crc(names, file, common, layout) != crc:
                raise Damaged(file)
            array = np.frombuffer(names, np.uint8).reshape(runs, DIGEST)
            made.append(Row(number, file, runs, dict(json.loads(common)), array))
    return made


def variables(connection: sqlite3.Connection, wanted: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The layouts of what shards recorded, by the number of the shard."""
    asked = set(wanted)
    with _well_formed("the recorded arrays"):
        texts = connection.execute("SELECT id, variables FROM shards")
        return {number: dict(json.loads(text)) for number, text in texts if number in asked}


def problems(connection: sqlite3.Connection) -> dict[str, str]:
    """What is wrong with files that cannot be used."""
    return dict(connection.execute("SELECT file, problem FROM shards WHERE problem != '' ORDER BY file"))


def column_names(connection: sqlite3.Connection) -> dict[str, str]:
    """Whether each column is a "field" or a "scalar"."""
    return dict(connection.execute("SELECT name, min(kind) FROM columns GROUP BY name"))


def columns(connection: sqlite3.Connection, name: str) -> dict[int, Column]:
    """A column of all shards that have it, by the number of the shard."""
    made = {}
    asked = "SELECT shard, dtype, categories, data, crc FROM columns WHERE name = ?"
    for number, kind, categories, data, crc in connection.execute(asked, (name,)):
        with _well_formed(name):
            if _crc(data, name, str(number), kind, categories) != crc:
                raise Damaged(name)
            values = np.frombuffer(data, _DTYPES[kind])
            values = values.astype(values.dtype.newbyteorder("="), copy=False)
            made[number] = Column.trusted(values, tuple(json.loads(categories)) if kind == "c" else None)
    return made


@contextlib.contextmanager
def _well_formed(what: str) -> Iterator[None]:
    """Whatever is not as it was written is `Damaged`."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:  # InvalidInput is a ValueError
        raise Damaged(what) from error


def _empty() -> sqlite3.Connection:
    """An index in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for statement in _SCHEMA:
        connection.execute(statement)
    return connection


def _insert(connection: sqlite3.Connection, entries: "list[tuple[str, int, Summary | None, str, str]]") -> None:
    """Enter shards, in place of older entries of the same files: (file, size, summary or None, problem, stamp)."""
    with _transaction(connection):
        for file, size, made, problem, stamp in entries:
            _delete_one(connection, file)
            common = "{}" if made is None else "{" + ",".join(_pairs(made.common)) + "}"
            names = b"" if made is None else np.ascontiguousarray(made.names).tobytes()
            layout = "{}" if made is None else json.dumps({name: one._asdict() for name, one in made.variables.items()})
            crc = _crc(names, file, common, layout)
            row = (file, size, len(names) // DIGEST, common, layout, names, crc, problem, stamp)
            number = connection.execute(
                "INSERT INTO shards (file, size, runs, common, variables, names, crc, problem, stamp) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
            if made is not None:
                both = [("field", *item) for item in made.fields.items()]
                both += [("scalar", *item) for item in made.scalars.items()]
                columns_of = [_column_row(number, kind, name, column) for kind, name, column in both]
                connection.executemany(f"INSERT INTO columns ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", columns_of)


def _pairs(common: dict[str, Value]) -> list[str]:
    return [f'"{name}":{value_text(common[name])}' for name in sorted(common)]


def _column_row(number: Any, kind: str, name: str, column: Column) -> tuple[Any, ...]:
    categories = "" if column.categories is None else value_list(column.categories)
    letter = "c" if column.categories is not None else column.values.dtype.kind
    data = column.values.astype(_DTYPES[letter], copy=False).tobytes()
    return name, number, kind, letter, categories, data, _crc(data, name, str(number), letter, categories)


def _crc(data: bytes, *texts: str) -> int:
    """The checksum of an entry: SQLite has none, and the index is not flushed."""
    return zlib.crc32(data, zlib.crc32("\0".join(texts).encode()))


def _delete(connection: sqlite3.Connection, files: Iterable[str]) -> None:
    with _transaction(connection):
        for file in files:
            _delete_one(connection, file)


def _delete_one(connection: sqlite3.Connection, file: str) -> None:
    for (number,) in connection.execute("SELECT id FROM shards WHERE file = ?", (file,)).fetchall():
        connection.execute("DELETE FROM columns WHERE shard = ?", (number,))
        connection.execute("DELETE FROM shards WHERE id = ?", (number,))


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


def _prepare(connection: sqlite3.Connection, *, wal: bool) -> None:
    """Settings of the connection, and the tables if the file is new."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA synchronous = OFF")  # what a power cut spoils has a wrong checksum, and is made anew
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        _check_schema(connection)
        return
    connection.execute(f"PRAGMA page_size = {_PAGE}")
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")  # it is kept in the file; the write below fails if it cannot be
    with _transaction(connection):
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("CREATE INDEX columns_of ON columns (shard)")


def _check_schema(connection: sqlite3.Connection) -> None:
    """The tables are ours, and nothing else is there that would be run."""
    asked = "SELECT sql FROM sqlite_master WHERE type != 'index' ORDER BY name DESC"
    if tuple(sql for (sql,) in connection.execute(asked)) != _SCHEMA:
        raise Damaged("other tables")


def _code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _is_damage(error: Exception) -> bool:
    """Whether the content of the index is at fault, and making it anew would help."""
    return _code(error) not in _NOT_DAMAGED


def _in_wal_mode(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(20)[18:] == b"\2\2"
    except OSError:
        return False


def _may_share_memory(folder: Path) -> bool:
    """Whether the folder is on a disk of this machine, as far as the system says."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as lines:
            mounts = [line.split() for line in lines]
        place = os.path.realpath(folder)
    except OSError:
        return True
    best, kind = "", ""
    for words in mounts:
        point = words[4].encode().decode("unicode_escape", errors="replace")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, words[words.index("-") + 1]
    return kind not in _NETWORK


def _stamp(facts: os.stat_result) -> str:
    """What changes when a file is replaced by another of the same size."""
    return str(facts.st_mtime_ns)
