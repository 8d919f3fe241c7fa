"""Files appear whole or not at all."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell._util import files
from stepwell._util.files import keep_elsewhere, write_bytes, write_text, write_whole

_WRITES_UNTIL_TOLD_TO_END = """
import gc, signal, sys, time
from pathlib import Path
from stepwell._util.files import end_at_once, write_whole

signal.signal(signal.SIGTERM, lambda *_: end_at_once(3))

def slowly(name):
    Path(name).write_text("half")
    print("begun", flush=True)
    time.sleep(60)

def from_the_collector(phase, info):  # where an exception of the handler would be lost
    write_whole(sys.argv[1], slowly)

gc.callbacks.append(from_the_collector)
gc.collect()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def writing(tmp_path: Path):
    """A process in the middle of writing `a.txt`."""
    command = [sys.executable, "-c", _WRITES_UNTIL_TOLD_TO_END, str(tmp_path / "a.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert [path.read_text() for path in tmp_path.iterdir()] == ["half"]
        yield process
        process.kill()


def test_a_process_told_to_end_leaves_no_half_written_file(writing: subprocess.Popen, tmp_path: Path):
    writing.send_signal(signal.SIGTERM)
    assert writing.wait(timeout=30) == 3
    assert writing.stderr is not None and writing.stderr.read() == ""
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next_write_but_not_too_soon(
    writing: subprocess.Popen, tmp_path: Path
):
    (part,) = tmp_path.iterdir()
    others = [".mine", ".stepwell-00000000-1-00000000.part", f".stepwell-{files._machine()}-x-00000000.part"]
    for name in others:
        (tmp_path / name).touch()

    def age(seconds: float) -> None:
        for path in tmp_path.iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))

    age(2 * files._ABANDONED)
    write_text(tmp_path / "b.txt", "b")
    assert part.exists()  # the process is alive
    writing.kill()
    writing.wait()
    os.utime(part)
    write_text(tmp_path / "b.txt", "b")
    assert part.exists()  # it ended a moment ago: it might be on a machine of the same name
    age(2 * files._ABANDONED)
    write_text(tmp_path / "b.txt", "b")
    assert names(tmp_path) == sorted([*others, "b.txt"])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail(name: str) -> None:
        Path(name).write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_whole(target, fail)
    assert names(tmp_path) == ["a.txt"] and target.read_text() == "old"


def test_a_disk_without_room_is_an_error_and_leaves_the_old_file(tmp_path: Path):
    """A limit of the process on the size of files stands for it: what fits is written, the rest is refused."""
    target = write_bytes(tmp_path / "a.bin", b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(OSError) as failure:
            write_bytes(target, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert failure.value.errno == errno.EFBIG
    assert names(tmp_path) == ["a.bin"] and target.read_bytes() == b"old"


def test_bytes_are_on_the_disk_before_they_have_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (done.append(os.fstat(number).st_mode), fsync(number)))
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("renamed"), replace(*names)))
    write_bytes(tmp_path / "a.bin", b"new")
    assert [what if what == "renamed" else stat.S_ISDIR(what) for what in done] == [False, "renamed", True]


def test_of_two_that_write_a_new_name_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = write_bytes(tmp_path / "a.bin", b"first", replace=False)
    for links in (True, False):
        if not links:
            monkeypatch.setattr(os, "link", lambda *names: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
            write_bytes(tmp_path / "b.bin", b"b", replace=False)
        with pytest.raises(FileExistsError):
            write_bytes(target, b"second", replace=False)
    assert target.read_bytes() == b"first" and names(tmp_path) == ["a.bin", "b.bin"]


def test_a_link_is_followed_and_permissions_are_the_usual(tmp_path: Path):
    (tmp_path / "far").mkdir()
    (tmp_path / "a.txt").symlink_to(tmp_path / "far" / "b.txt")
    write_text(tmp_path / "a.txt", "first")
    write_text(tmp_path / "a.txt", "second")
    assert (tmp_path / "a.txt").is_symlink() and (tmp_path / "far" / "b.txt").read_text() == "second"
    (tmp_path / "plain").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_data_are_kept_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    first, second = (keep_elsewhere("run.nc", content) for content in (b"one", b"two"))
    assert first is not None and second is not None and first.read_bytes() + second.read_bytes() == b"onetwo"
    assert first.is_relative_to(tmp_path / "state") and first.parent.stat().st_mode & 0o77 == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "temporary" / "file" / "state"))
    (tmp_path / "temporary" / "file").touch()
    third = keep_elsewhere("run.nc", b"three")
    assert third is not None and third.parent.parent == tmp_path / "temporary"

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_bytes", full)
    before = names(tmp_path / "temporary")
    assert keep_elsewhere("run.nc", b"four") is None and names(tmp_path / "temporary") == before
