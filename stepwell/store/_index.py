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

from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import DIGEST

from ._column import Column
from ._configuration import Value, checked_text
from ._shard import FORMAT, file_name, value_list

if TYPE_CHECKING:
    from ._reader import Summary

Result = TypeVar("Result")

NAME = "index.sqlite"
EARLIER = "of an earlier version of Stepwell"
"""Said of files that were written by one."""
SHARD = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.nc")
"""Names of shards, below the folder of shards."""
_FOLDER = re.compile("[0-9a-f]{2}")
_ASIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database."""
_SCHEMA = (
    f"CREATE TABLE shards (/* format {FORMAT} */ id INTEGER PRIMARY KEY, file TEXT NOT NULL UNIQUE, "
    "size INTEGER NOT NULL, "
    "common TEXT NOT NULL, columns TEXT NOT NULL, variables TEXT NOT NULL, names BLOB NOT NULL, problem TEXT NOT NULL, "
    "stamp TEXT NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE columns (name TEXT NOT NULL, shard INTEGER NOT NULL, dtype TEXT NOT NULL, categories TEXT NOT NULL, "
    "data BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (name, shard))",
)
_SHARD_COLUMNS = "file, size, common, columns, variables, names, problem, stamp"
_COLUMN_COLUMNS = "name, shard, dtype, categories, data"
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
    columns: dict[str, str]
    """Whether each of its columns is a "field" or a "scalar"."""
    names: np.ndarray


class _Memory(sqlite3.Connection):
    """An index in memory, closed when nothing refers to it any more: Python 3.13 warns of those that are not."""

    def __del__(self) -> None:
        self.close()


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
        except (sqlite3.Error, Damaged, UnicodeDecodeError):
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
        except UnicodeDecodeError as error:  # of a message of SQLite that quotes what is damaged
            raise Damaged("text that is none") from error
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
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Memory)
        try:
            if stat.S_ISREG(os.lstat(self.path).st_mode):
                content = bytearray(self.path.read_bytes())
                content[18:20] = b"\1\1"  # the write-ahead log stays behind; what it holds is read from the shards
                connection.deserialize(bytes(content))
                _check_schema(connection)
                return connection
        except (OSError, sqlite3.Error, Damaged, OverflowError, UnicodeDecodeError):
            pass
        connection.close()
        return _empty()

    def _update(self, connection: sqlite3.Connection) -> None:
        """Enter files that are not in the index, and drop entries whose file is gone."""
        there = dict(self.files())
        known = {file: rest for file, *rest in connection.execute("SELECT file, size, stamp FROM shards")}
        if not all(isinstance(file, str) for file in known):
            raise Damaged("names that are none")
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


def rows(connection: sqlite3.Connection, *, strict: bool = True) -> list[Row]:
    """All shards that can be used, in the order of their names. A store of an earlier version is refused if `strict`:
    its runs have other names, and would silently count as missing."""
    made = list(_all_rows(connection))
    old = next((problem for _, problem in made if EARLIER in problem), None) if strict else None
    if old is not None:
        raise InvalidInput(f"{old}; choose another store, or remove this one")
    return [row for row, problem in made if not problem]


def problems(connection: sqlite3.Connection) -> dict[str, str]:
    """What is wrong with files that cannot be used."""
    return {row.file: problem for row, problem in _all_rows(connection) if problem}


def _all_rows(connection: sqlite3.Connection) -> Iterator[tuple[Row, str]]:
    for number, *entry, crc in connection.execute(f"SELECT id, {_SHARD_COLUMNS}, crc FROM shards ORDER BY file"):
        file, _, common, columns_of, _, names, problem, _ = entry
        with _well_formed(file):
            if _crc(entry) != crc:
                raise Damaged(file)
            array = np.frombuffer(names, np.uint8).reshape(-1, DIGEST)
            row = Row(number, file, len(array), dict(json.loads(common)), dict(json.loads(columns_of)), array)
        yield row, problem


def variables(connection: sqlite3.Connection, wanted: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The layouts of what shards recorded, by the number of the shard."""
    asked = set(wanted)
    with _well_formed("the recorded arrays"):
        texts = connection.execute("SELECT id, variables FROM shards")
        return {number: dict(json.loads(text)) for number, text in texts if number in asked}


def columns(connection: sqlite3.Connection, name: str) -> dict[int, Column]:
    """A column of all shards that have it, by the number of the shard."""
    made = {}
    asked = f"SELECT {_COLUMN_COLUMNS}, crc FROM columns WHERE name = ?"
    for *entry, crc in connection.execute(asked, (name,)):
        _, number, kind, categories, data = entry
        with _well_formed(name):
            if _crc(entry) != crc:
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
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Memory)
    for statement in _SCHEMA:
        connection.execute(statement)
    return connection


def _insert(connection: sqlite3.Connection, entries: "list[tuple[str, int, Summary | None, str, str]]") -> None:
    """Enter shards, in place of older entries of the same files: (file, size, summary or None, problem, stamp)."""
    with _transaction(connection):
        for file, size, made, problem, stamp in entries:
            _delete_one(connection, file)
            entry = [file, size, "{}", "{}", "{}", b"", problem, stamp]
            both = {} if made is None else {"field": made.fields, "scalar": made.scalars}
            if made is not None:
                layout = {name: one._asdict() for name, one in made.variables.items()}
                columns_of = {name: kind for kind, columns_of in both.items() for name in columns_of}
                names = np.ascontiguousarray(made.names).tobytes()
                entry[2:6] = checked_text(made.common), json.dumps(columns_of), json.dumps(layout), names
            number = _insert_row(connection, "shards", _SHARD_COLUMNS, entry)
            for columns_of in both.values():
                for name, column in columns_of.items():
                    _insert_row(connection, "columns", _COLUMN_COLUMNS, _column_entry(number, name, column))


def _insert_row(connection: sqlite3.Connection, table: str, names: str, entry: list[Any]) -> int | None:
    """Enter a row with its checksum; its number."""
    places = ", ".join("?" * (len(entry) + 1))
    return connection.execute(f"INSERT INTO {table} ({names}, crc) VALUES ({places})", [*entry, _crc(entry)]).lastrowid


def _column_entry(number: Any, name: str, column: Column) -> list[Any]:
    categories = "" if column.categories is None else value_list(column.categories)
    kind = "c" if column.categories is not None else column.values.dtype.kind
    return [name, number, kind, categories, column.values.astype(_DTYPES[kind], copy=False).tobytes()]


def _crc(entry: list[Any]) -> int:
    """The checksum of a row: SQLite has none, and the index is not flushed."""
    crc = 0
    for value in entry:
        crc = zlib.crc32(value if isinstance(value, bytes) else repr(value).encode(), crc)
    return crc


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
