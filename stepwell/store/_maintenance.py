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
from ._shard import file_name
from ._store import Store


class Problem(NamedTuple):
    """What is wrong with a file."""

    path: Path
    reason: str


class Merged(NamedTuple):
    """What a merge did."""

    shards: int
    runs: int
    problems: list[Problem]


def verify(folder: Path, index: _index.Index) -> list[Problem]:
    """All that is wrong with the files of a store; nothing is changed."""
    problems = list(_foreign(folder))
    for file, _ in index.files():
        path = folder / "shards" / file
        try:
            names = _reader.summary(path, again=True).names
            if file_name(names) != file:
                raise InvalidInput(f"it has the runs of {file_name(names)}: it was renamed")
        except InvalidInput as error:
            problems.append(Problem(path, str(error)))
    with contextlib.closing(index.copy()) as connection:
        try:
            for name in {name for row in _index.rows(connection, strict=False) for name in row.columns}:
                _index.columns(connection, name)
        except (sqlite3.Error, _index.Damaged, UnicodeDecodeError):
            problems.append(Problem(index.path, "it is damaged; it is made anew with the next question"))
    return sorted(problems)


def _foreign(folder: Path) -> Iterator[Problem]:
    """Files and links that do not belong where they are."""
    shards, index = folder / "shards", folder / _index.NAME
    inside = [] if shards.is_symlink() else shards.rglob("*")
    for path in (shards, index, *inside):
        inner = path.relative_to(shards).as_posix() if path != index else ""
        if path.is_symlink():
            yield Problem(path, "it is a link, which may lead out of the store, and is not used")
        elif path not in (shards, index) and not (
            (path.is_dir() and len(inner) == 2)
            or (path.is_file() and (_index.SHARD.fullmatch(inner) or files.is_temporary(path.name)))
        ):
            yield Problem(path, "it is not a file of the store")


def remove(
    store: Store, index: _index.Index, where: Sequence[str], names: np.ndarray | None, *, spared: str = ""
) -> int:
    """Remove runs, but for those in the file `spared`.

    What stays of a shard is written before the shard is removed: a killed process loses nothing.
    """

    def ask(connection: sqlite3.Connection) -> Any:
        return Chosen(connection, where, names).names(), _index.rows(connection)

    leaving, shards = index.ask(ask)
    for shard in shards:
        going = is_among(shard.names, leaving)
        if going.any() and shard.file != spared:
            path = store.shards_path / shard.file
            if not going.all():
                store.add(_reader.load(path).take(np.flatnonzero(~going)))
            _unlink(path)
    index.ask(lambda connection: None)
    return len(leaving)


def collect_garbage(store: Store, index: _index.Index, *, damaged: bool) -> list[Path]:
    """Remove what is of no use; the files that were removed."""
    removed = files.sweep(store.path)
    shards = index.ask(_index.rows)
    useful = first_of_each(np.concatenate([shard.names for shard in shards])) if shards else np.zeros(0, bool)
    end = 0
    for shard in shards:
        start, end = end, end + shard.runs
        if not useful[start:end].any() and _held_by_others(store, shard, shards):
            removed.append(_unlink(store.shards_path / shard.file))
    if damaged:
        removed += [_unlink(path) for path in store.damaged()]
    if store.shards_path.is_dir() and not store.shards_path.is_symlink():
        for folder in sorted(store.shards_path.iterdir()):
            if folder.is_dir() and not folder.is_symlink():
                removed += files.sweep(folder)
                with contextlib.suppress(OSError):
                    folder.rmdir()  # if it is empty
    index.ask(lambda connection: connection.execute("VACUUM"))
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
                _reader.summary(store.shards_path / other.file, again=True)
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
    index = _index.Index(other.path, _reader.summary)
    for file, _ in index.files():
        path = other.shards_path / file
        try:
            content = path.read_bytes()
            made = _reader.summary(path, content=content)
            if file_name(made.names) != file:
                raise InvalidInput(f"{shortened(path)} was renamed; it has the runs of {file_name(made.names)}")
        except (InvalidInput, OSError) as error:
            problems.append(Problem(path, str(error)))
            continue
        missing = int((~store.known(made.names)).sum())
        if missing:
            store._write(file, content, made)
            copied, runs = copied + 1, runs + missing
    return Merged(copied, runs, problems)
