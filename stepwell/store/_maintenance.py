"""Looking after a store: what is damaged or foreign, what can go, what another store has."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepwell._util import files
from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import first_of_each, is_among
from stepwell._util.text import shortened

from . import _index, _reader
from ._query import Chosen
from ._store import Store, verified


class Problem(NamedTuple):
    """What is wrong with a file."""

    path: Path
    reason: str


class Merged(NamedTuple):
    """What a merge did."""

    shards: int
    runs: int
    problems: list[Problem]


def verify(store: Store) -> list[Problem]:
    """All that is wrong with the files of a store; nothing is changed."""
    problems, index = list(_foreign(store.path)), store._index
    for file, _ in index.files():
        try:
            verified(store.shards_path / file)
        except InvalidInput as error:
            problems.append(Problem(store.shards_path / file, str(error)))
    with contextlib.closing(index.copy()) as connection:
        try:
            for name in {name for row in _index.rows(connection, strict=False) for name in row.columns}:
                _index.columns(connection, name)
        except (sqlite3.Error, _index.Damaged, UnicodeDecodeError):
            problems.append(Problem(index.path, "it is damaged; it is rebuilt with the next question"))
    return sorted(problems)


def _foreign(folder: Path) -> Iterator[Problem]:
    """What does not belong where it is; links are not used."""
    for path in (folder / "shards").rglob("*"):
        inner = path.relative_to(folder / "shards").as_posix()
        own = len(inner) == 2 if path.is_dir() else _index.SHARD.fullmatch(inner) or files.is_temporary(path.name)
        if path.is_symlink() or not own:
            yield Problem(path, "it is not a file of the store")


def remove(store: Store, where: Sequence[str], names: np.ndarray | None, *, spared: str = "") -> int:
    """Remove runs, but for those in the file `spared`.

    What stays of a shard is written before the shard is removed: a killed process loses nothing.
    """

    def ask(connection: sqlite3.Connection) -> Any:
        return Chosen(connection, where, names).names(), _index.rows(connection)

    leaving, shards = store._index.ask(ask)
    for shard in shards:
        going = is_among(shard.names, leaving)
        if going.any() and shard.file != spared:
            path = store.shards_path / shard.file
            if not going.all():
                store.add(_reader.load(path).take(np.flatnonzero(~going)))
            _unlink(path)
    store._index.ask(lambda connection: None)
    return len(leaving)


def collect_garbage(store: Store, *, damaged: bool) -> list[Path]:
    """Remove what is of no use; the files that were removed."""
    removed = files.sweep(store.path)
    shards = store._index.ask(_index.rows)
    useful = first_of_each(_index.names_in(shards))
    end = 0
    for shard in shards:
        start, end = end, end + shard.runs
        if not useful[start:end].any() and _held_by_others(store, shard, shards):
            removed.append(_unlink(store.shards_path / shard.file))
    if damaged:
        removed += [_unlink(path) for path in store.damaged()]
    for folder in sorted(store.shards_path.glob("*/")):
        removed += files.sweep(folder)
        with contextlib.suppress(OSError):
            folder.rmdir()  # if it is empty
    store._index.ask(lambda connection: connection.execute("VACUUM"))
    return removed


def _held_by_others(store: Store, shard: _index.Row, shards: list[_index.Row]) -> bool:
    """Whether shards that come before it, and are undamaged, hold all its runs."""
    held = np.zeros(shard.runs, bool)
    for other in shards:
        if other.file == shard.file:
            break
        among = is_among(shard.names, other.names)
        if among.any():
            with contextlib.suppress(InvalidInput):
                verified(store.shards_path / other.file)
                held |= among
    return bool(held.all())


def _unlink(path: Path) -> Path:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot remove {shortened(path)} ({files.why(error)})") from None
    return path


def merge(store: Store, other: Store) -> Merged:
    """Copy the shards of another store that have runs which this one lacks."""
    if not other.path.is_dir():
        raise InvalidInput(f"there is no store {shortened(other.path)}; check the name")
    copied, runs, problems = 0, 0, []
    for file, _ in other._index.files():
        path = other.shards_path / file
        try:
            made, content = verified(path), path.read_bytes()
        except (InvalidInput, OSError) as error:
            problems.append(Problem(path, str(error)))
            continue
        if missing := int((~store.known(made.names)).sum()):
            store._write(file, content, made)
            copied, runs = copied + 1, runs + missing
    return Merged(copied, runs, problems)
