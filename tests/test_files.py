"""Files appear whole or not at all."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell._files import write_bytes, write_whole

_WRITES_UNTIL_TOLD_TO_END = """
import gc, signal, sys, time
from pathlib import Path
from stepwell._files import end_at_once, write_whole

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


def test_a_process_told_to_end_leaves_no_half_written_file(tmp_path: Path):
    command = [sys.executable, "-c", _WRITES_UNTIL_TOLD_TO_END, str(tmp_path / "a.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        assert [path.read_text() for path in tmp_path.iterdir()] == ["half"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 3
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail(name: str) -> None:
        Path(name).write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_whole(target, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"] and target.read_text() == "old"


def test_bytes_are_written_as_they_are(tmp_path: Path):
    target = tmp_path / "a.bin"
    for data in (bytes(range(256)), b""):
        assert write_bytes(target, data) == target
        assert target.read_bytes() == data and list(tmp_path.iterdir()) == [target]
