"""Every verb survives an output that cannot be written, and a terminal that lacks characters."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.cli import main
from stepwell.cli._output import Stream, surviving_output

SMALL = "--dim 2 --context 5 --objective moments --sequences 40 --training descent --steps 12 --scale 0.3".split()
PREDICT = ["predict", "--eigenvalues", ".6", ".4", "--context", "31"]


def command(*words: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with redirections of the shell."""
    line = ["sh", "-c", f'exec "$0" -m stepwell "$@" {shell}', sys.executable, *words]
    return subprocess.run(
        line, env={**os.environ, **environment}, capture_output=True, text=True, errors="surrogateescape", timeout=120
    )


HELP = ["train", "--help"]


@pytest.mark.parametrize("words", [["--help"], HELP, ["--version"]], ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_the_output_is_one_line(words: list[str], unbuffered: str):
    done = command(*words, shell="> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 2
    assert done.stderr == "stepwell: cannot write to standard output (No space left on device)\n"


@pytest.fixture
def full():
    """A stream to a disk without room."""
    stream = open("/dev/full", "w", encoding="utf-8")
    yield stream
    with contextlib.suppress(OSError):
        stream.close()


def test_a_full_disk_behind_a_result(full, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "stdout", full)
    assert main(PREDICT) == 2
    assert capsys.readouterr().err == "stepwell: cannot write to standard output (No space left on device)\n"


@pytest.mark.parametrize("shell", ["2> /dev/full", "2>&-"])
def test_messages_that_cannot_be_written_change_nothing(
    shell: str, full, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert command("predict", "--heads", "0", shell=shell).returncode == 2
    monkeypatch.setattr(sys, "stderr", full if "full" in shell else None)
    assert main(PREDICT) == 0 and "final loss" in capsys.readouterr().out


@pytest.mark.parametrize("shell", [">&-", ">&- 2>&-", "| head -n 1"])
def test_an_output_that_is_closed_is_not_worth_a_message(shell: str):
    done = command(*HELP, shell=shell)
    assert done.returncode == 0 and done.stderr == ""


def test_characters_that_the_locale_lacks_are_replaced(tmp_path: Path):
    """The names of files are in its encoding, too."""
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = command("train", *SMALL, "--out", str(tmp_path / "Läufe λ"), **environment)
    assert done.returncode == 0 and done.stderr == ""
    assert "?" in done.stdout and done.stdout.isascii()
    assert len(list((tmp_path / "Läufe λ").iterdir())) == 3


def test_characters_that_the_terminal_lacks_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["train", *SMALL, "--out", str(tmp_path / "Läufe λ")]) == 0
    assert b"?" in written.getvalue() and written.getvalue().isascii()
    assert len(list((tmp_path / "Läufe λ").iterdir())) == 3
    overview = command(PYTHONIOENCODING="ascii")
    assert overview.returncode == 2 and "stepwell VERB ?" in overview.stdout


def test_the_files_of_a_run_are_written_although_its_report_cannot_be(
    full, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "stdout", full)
    monkeypatch.setattr(sys, "stderr", full)
    assert main(["train", *SMALL, "--out", str(tmp_path)]) == 2
    assert len(list(tmp_path.iterdir())) == 3


def test_a_stream_keeps_its_first_error_and_drops_the_rest():
    class Failing:
        encoding = "utf-8"
        calls = 0

        def write(self, text: str) -> int:
            self.calls += 1
            raise OSError(28, "full")

        def flush(self) -> None:
            raise ValueError("I/O operation on closed file")

    inner = Failing()
    stream = Stream(inner)
    print("one", file=stream)
    print("two", file=stream, flush=True)
    assert inner.calls == 1 and isinstance(stream.error, OSError)
    closed = Stream(Failing())
    closed.flush()
    assert isinstance(closed.error, ValueError) and closed.encoding == "utf-8"


def test_streams_are_put_back(capsys: pytest.CaptureFixture[str]):
    before = sys.stdout, sys.stderr
    with pytest.raises(ZeroDivisionError), surviving_output():
        assert sys.stdout is not before[0]
        print("λ")
        raise ZeroDivisionError
    assert (sys.stdout, sys.stderr) == before and capsys.readouterr().out == "λ\n"
    assert main(["train", "--help"]) == 0 and "--steps" in capsys.readouterr().out
