"""Faults, with processes that are really killed and disks that are really full: nothing missing, nothing double."""

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from own_shards import shard_of

from stepwell._util import files
from stepwell._util.errors import InvalidInput
from stepwell.store import Store, _index, _reader, _store, export

ROOT = Path(__file__).parents[2]
_BEGIN = """
import os, subprocess, sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from own_shards import shard_of
from stepwell._util.errors import InvalidInput
from stepwell.store import Store
""".format(root=str(ROOT), tests=str(ROOT / "tests"))

# In a mount namespace of its own, which ends with the process.
_MOUNTED = ["unshare", "-rm"]


def start(code: str, *arguments: object, before: list[str] | None = None) -> subprocess.Popen[str]:
    command = [*(before or []), sys.executable, "-c", _BEGIN + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def mounted(code: str, *arguments: object) -> str:
    if shutil.which("unshare") is None or subprocess.run([*_MOUNTED, "true"], capture_output=True).returncode:
        pytest.skip("there are no mount namespaces")
    return finished(start(code, *arguments, before=_MOUNTED))


def seeds(store: Store) -> list[int]:
    return sorted(store.table(columns=["seed"])["seed"].tolist())


def test_a_shard_that_is_removed_while_the_index_is_made_is_no_damage(store: Store, monkeypatch: pytest.MonkeyPatch):
    paths = [store.add(shard_of(0)), store.add(shard_of(100))]
    (store.path / "index.sqlite").unlink()
    again = Store(store.path)

    def read(path: Path) -> Any:
        paths[0].unlink(missing_ok=True)
        return _store.verified(path)

    monkeypatch.setattr(again._index, "_read", read)
    assert len(again.table()) == 5 and again.damaged() == {}


def test_a_folder_that_cannot_be_searched_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch):
    store.add(shard_of(0))
    shown = list(os.scandir(store.shards_path / os.listdir(store.shards_path)[0]))

    class Hidden:
        name, path = shown[0].name, shown[0].path

        def is_file(self, **_: Any) -> bool:
            return True

        def stat(self, **_: Any) -> os.stat_result:
            raise PermissionError(errno.EACCES, "Permission denied")

    entries = _index._entries
    monkeypatch.setattr(
        _index, "_entries", lambda place: entries(place) if Path(place).name == "shards" else [Hidden()]
    )
    with pytest.raises(InvalidInput, match="cannot read .*make it readable"):
        store.table()


def test_two_processes_that_add_at_once_lose_nothing_and_double_nothing(store: Store):
    code = "for n in map(int, sys.argv[2:]):\n    Store(sys.argv[1]).add(shard_of(10 * n, 10))"
    both = [start(code, store.path, *numbers) for numbers in (range(12), range(4, 16))]  # eight of them in both
    for process in both:
        finished(process)
    assert seeds(store) == list(range(160))
    with sqlite3.connect(store.path / "index.sqlite") as connection:
        assert connection.execute("SELECT count(*), sum(length(names)) FROM shards").fetchone() == (16, 160 * 16)
    connection.close()
    assert store.verify() == [] and len(list(store.shards_path.rglob("*.*"))) == 16


def test_killed_in_the_middle_of_an_add_the_store_is_whole(store: Store):
    """The process is stopped when the shard is half written, between its write and the renaming, and killed."""
    store.add(shard_of(0))
    code = """
from stepwell._util import files
def slowly(path):
    print("half", flush=True)
    time.sleep(600)
files._flush = slowly
Store(sys.argv[1]).add(shard_of(5))
"""
    process = start(code, store.path)
    try:
        assert process.stdout is not None and process.stdout.readline() == "half\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    (part,) = [path for path in store.shards_path.rglob(".*") if path.is_file()]
    assert seeds(store) == list(range(5)) and store.verify() == []
    assert not store.known(shard_of(5).names).any()
    assert store.collect_garbage() == [] and part.exists()  # too young: another machine might have this one's name
    later = time.time() + 10 * files._ABANDONED
    os.utime(part, (later, later))  # the clock was set back since
    assert store.collect_garbage() == [part] and not part.exists()
    store.add(shard_of(5))
    assert seeds(store) == list(range(10))


def test_killed_at_random_moments_and_begun_again_nothing_is_missing_or_double(store: Store):
    code = "print('begun', flush=True)\nfor n in range(40):\n    Store(sys.argv[1]).add(shard_of(10 * n, 10))"
    rng = np.random.default_rng(0)
    for _ in range(3):
        process = start(code, store.path)
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        process.communicate()
        assert store.verify() == []
        assert len(set(seeds(store))) == len(seeds(store))
    finished(start(code, store.path))
    assert seeds(store) == list(range(400)) and store.verify() == []


def test_killed_between_the_shard_and_the_index_the_shard_counts(store: Store):
    store.add(shard_of(0))
    code = """
from stepwell.store import _index
_index.Index.note = lambda *_: os.kill(os.getpid(), 9)
Store(sys.argv[1]).add(shard_of(5))
"""
    process = start(code, store.path)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert seeds(store) == list(range(10))


@pytest.mark.optional
def test_a_full_disk_is_one_error_and_leaves_a_store_that_works(tmp_path: Path):
    code = """
place = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", place], check=True)
store, added = Store(place + "/store"), 0
try:
    while added < 1000:
        store.add(shard_of(10 * added, 10))
        added += 1
except OSError as error:
    print(error.errno, Path(error.filename).suffix, added > 0)
assert sorted(store.table()["seed"]) == list(range(10 * added))
assert sorted(Store(place + "/store").table()["seed"]) == list(range(10 * added))
assert store.verify() == [] and not [p for p in store.shards_path.rglob(".*")]
full = Path(place, "filling")
with open(full, "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)): pass
    except OSError: pass
(Path(place) / "store/index.sqlite").unlink(missing_ok=True)
assert len(Store(place + "/store").table()) == 10 * added
full.unlink()
[path.unlink() for path in list(store.shards_path.rglob("*.nc"))[:5]]
store.add(shard_of(5000, 10))
assert 5000 in set(store.table()["seed"])
"""
    assert mounted(code, tmp_path).split() == ["28", ".nc", "True"]


@pytest.mark.optional
@pytest.mark.parametrize("index", ["there", "removed", "old"])
def test_a_store_that_cannot_be_written_can_be_read(tmp_path: Path, index: str):
    store = Store(tmp_path / "store")
    store.add(shard_of(0))
    seeds(store)
    old = (store.path / "index.sqlite").read_bytes()
    store.add(shard_of(5))
    seeds(store)
    if index == "removed":
        (store.path / "index.sqlite").unlink()
    elif index == "old":
        (store.path / "index.sqlite").write_bytes(old)
    code = """
place = sys.argv[1]
subprocess.run(["mount", "--bind", place, place], check=True)
subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
store = Store(place)
for _ in range(2):
    assert sorted(store.table()["seed"]) == list(range(10))
assert float(store.select(["seed=7"])["loss"][0, -1]) == 0.7
assert store.known(shard_of(0).names).all() and store.verify() == []
try:
    store.add(shard_of(20))
except OSError as error:
    print(error.errno)
try:
    store.remove(["seed=1"])
except (OSError, InvalidInput) as error:
    print("Read-only" in str(error))
"""
    before = sorted(str(path) for path in store.path.rglob("*"))
    assert mounted(code, store.path).split() == ["30", "True"]
    assert sorted(str(path) for path in store.path.rglob("*")) == before


def test_the_index_deleted_while_a_store_is_open(store: Store):
    store.add(shard_of(0))
    assert seeds(store) == list(range(5))
    for path in store.path.glob("index.sqlite*"):
        path.unlink()
    store.add(shard_of(5))
    assert seeds(store) == list(range(10)) and (store.path / "index.sqlite").is_file()
    code = """
store = Store(sys.argv[1])
print("open", len(store.table()), flush=True)
sys.stdin.readline()
store.add(shard_of(10))
print(len(store.table()))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGIN + code, store.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "open 10\n"
    (store.path / "index.sqlite").unlink()
    output, _ = process.communicate("\n", timeout=120)
    assert output == "15\n" and seeds(store) == list(range(15))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 10_000)


def _flip_every_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for place in range(200, len(content), 997):
        content[place] ^= 255
    path.write_bytes(content)


def _other_tables(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()


def _forge(statement: str, *values: object):
    def edit(path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute(statement, values)
        connection.close()

    return edit


DAMAGE = {
    "cut": _cut,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": _garbage,
    "flipped": _flip_every_page,
    "other tables": _other_tables,
    "a value": _forge("UPDATE columns SET data = ? WHERE name = 'final_loss'", np.full(5, -1.0).tobytes()),
    "a short value": _forge("UPDATE columns SET data = ? WHERE name = 'final_loss'", b"\0"),
    "a type": _forge("UPDATE columns SET dtype = 'O' WHERE name = 'seed'"),
    "categories": _forge("UPDATE columns SET categories = '[1' WHERE name = 'outcome'"),
    "names": _forge("UPDATE shards SET names = ?", bytes(80)),
    "a missing column": _forge("DELETE FROM columns WHERE name = 'final_loss'"),
    "a shard called damaged": _forge("UPDATE shards SET problem = 'x'"),
    "a configuration": _forge("UPDATE shards SET about = 3"),
    "text that is none": _forge("UPDATE shards SET about = CAST(x'ff' AS TEXT)"),
    "a layout": _forge("UPDATE shards SET about = '[{}, {}, {\"x\": 3}]'"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_index_is_made_anew(store: Store, case: str):
    store.add(shard_of(0))
    expected = store.table()
    DAMAGE[case](store.path / "index.sqlite")
    again = Store(store.path)
    assert again.table().equals(expected) and store.table().equals(expected)
    assert again.select()["loss"].shape == (5, 3) and again.verify() == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=20))
def test_an_index_with_flipped_bits_gives_the_same_answers(tmp_path: Path, flips):
    store, sound = Store(tmp_path / "store"), tmp_path / "sound.sqlite"
    path = store.path / "index.sqlite"
    if not sound.exists():
        store.add(shard_of(0))
        store.add(shard_of(5))
        shutil.copy(path, sound)
    content = bytearray(sound.read_bytes())
    used = [place for place, byte in enumerate(content) if byte]
    for number, bit in flips:
        content[used[number % len(used)]] ^= 1 << bit
    store._index.discard()
    path.write_bytes(content)
    assert seeds(Store(store.path)) == seeds(store) == list(range(10))
    assert store.select(["final_loss<0.45"])["loss"].shape == (5, 3)


@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2], ids=["with other times", "with its times"])
def test_a_store_moved_or_copied_elsewhere_is_read_there(store: Store, tmp_path: Path, copy: Callable[..., Any]):
    store.add(shard_of(0))
    seeds(store)
    moved = tmp_path / "else where" / "ä"
    moved.parent.mkdir()
    shutil.copytree(store.path, moved, copy_function=copy)
    shutil.rmtree(store.path)
    again = Store(moved)
    assert seeds(again) == list(range(5)) and again.verify() == []
    assert float(again.select(["seed=3"])["loss"][0, -1]) == 0.3
    assert str(tmp_path).encode() not in b"".join(path.read_bytes() for path in moved.rglob("*") if path.is_file())
    assert not store.known(shard_of(0).names).any()


@pytest.mark.parametrize("years", [-30, 30])
def test_times_of_any_year_change_nothing(store: Store, years: int):
    path = store.add(shard_of(0))
    when = time.time() + years * 3e7
    for one in (path, path.parent, store.path / "index.sqlite"):
        os.utime(one, (when, when))
    assert seeds(store) == list(range(5)) and store.verify() == []
    store.add(shard_of(5))
    assert seeds(Store(store.path)) == list(range(10))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, (when - 1, when - 1))  # it was altered, and before it was written
    with pytest.warns(RuntimeWarning, match=path.name):
        assert seeds(store) == list(range(5, 10)) and list(store.damaged()) == [path]


def test_an_index_that_is_locked_loses_no_shard(store: Store, monkeypatch):
    monkeypatch.setattr(_index, "_BUSY", 0.01)
    store.add(shard_of(0))
    other = sqlite3.connect(store.path / "index.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        store.add(shard_of(5))
        assert seeds(store) == list(range(10))
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert seeds(Store(store.path)) == list(range(10))


def test_what_stands_in_the_way_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match="not a folder"):
        Store(tmp_path / "file").add(shard_of(0))
    assert (tmp_path / "file").read_text() == "mine" and len(Store(tmp_path / "file").table()) == 0


def damage(path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spoil a shard; "denied": the system does not let it be read."""
    content = path.read_bytes()
    spoiled = {"truncated": content[: len(content) // 2], "empty": b"", "zeroed": content[:100] + bytes(900)}
    if how != "denied":
        path.write_bytes(spoiled[how] + (content[1000:] if how == "zeroed" else b""))
        return

    def denied(name: Any, *arguments: Any, **options: Any) -> Any:
        if Path(name) == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return open(name, *arguments, **options)

    monkeypatch.setattr(_reader, "open", denied, raising=False)


@pytest.mark.parametrize("how", ["truncated", "zeroed", "empty", "denied"])
def test_an_answer_without_the_runs_of_a_damaged_shard_says_so(store: Store, tmp_path: Path, how: str, monkeypatch):
    path = store.add(shard_of(0))
    store.add(shard_of(5))
    damage(path, how, monkeypatch)
    store.rebuild_index()
    for ask in (store.table, store.listing, store.select, lambda: export(store, tmp_path / "runs.nc")):
        with pytest.warns(RuntimeWarning, match=f"runs of damaged shards are left out: .*{path.name}"):
            ask()
    with pytest.warns(RuntimeWarning, match=path.name), pytest.raises(InvalidInput, match="no run has such a name"):
        store.describe(shard_of(0).names[0].tobytes().hex())


def test_a_shard_that_can_be_read_again_counts_again(store: Store, monkeypatch):
    path = store.add(shard_of(0))
    with monkeypatch.context() as patch:
        damage(path, "denied", patch)
        store.rebuild_index()
        assert list(store.damaged()) == [path]
    assert seeds(store) == list(range(5)) and not store.damaged()


@pytest.mark.parametrize("level", ["shards", "of the shard"])
def test_a_folder_that_cannot_be_read_is_an_error(store: Store, level: str, monkeypatch):
    path = store.add(shard_of(0))
    folder = path.parent if level == "of the shard" else store.shards_path
    scandir = os.scandir

    def denied(name: Any) -> Any:
        if Path(name) == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return scandir(name)

    monkeypatch.setattr(_index.os, "scandir", denied)
    with pytest.raises(InvalidInput, match=r"cannot read .* of the store \(Permission denied\)"):
        store.table()
