"""Progress that cannot be shown does not end the job."""

import io
import sys
import time

import pytest

from stepwell import Experiment
from stepwell._util import progress
from stepwell._util.progress import Meter


class Gone(io.StringIO):
    """A terminal that was closed, or a file on a full disk."""

    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal, self.calls = terminal, 0

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.calls += 1
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stream", [Gone(terminal=True), Gone(terminal=False), None], ids=["terminal", "file", "none"])
def test_a_job_goes_on_without_a_place_to_show_its_progress(stream: Gone | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with Meter("training", 3) as meter:
        for done in (1, 2, 3):
            meter.update(done, "loss 0.3")
    assert stream is None or stream.calls > 0


@pytest.mark.parametrize("total, words", [(10**4, ""), (10**5, "2.78 hours"), (10**7, "11.6 days")])
def test_a_job_of_hours_says_so_once_after_a_second(total, words, monkeypatch, capsys):
    clock = iter([0.0, 30.0, 30.1, 30.2, 31.2, 32.2])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with Meter("training", total, steady=True) as meter:
        meter.update(0)  # what it took to compile does not count
        meter.update(1)
        for done in (2, 12, 22):
            meter.update(done)
    lines = [line for line in capsys.readouterr().err.splitlines() if "at this pace" in line]
    assert len(lines) == bool(words) and all(f"training will take about {words}" in line for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shows(stream: io.StringIO, words: str) -> bool:
    """Whether a bar with these words is drawn after what the stream has now."""
    begin = len(stream.getvalue())
    end = time.monotonic() + 20.0
    while words not in stream.getvalue()[begin:] and time.monotonic() < end:
        time.sleep(0.01)
    return time.monotonic() < end


def test_a_bar_appears_before_the_first_report_and_one_within_another_takes_its_place(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 0.01)
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with Meter("whole", None):
        assert _shows(stream, "whole")
        with Meter("part", 2) as part:
            assert _shows(stream, "part")
            part.update(1)
        assert _shows(stream, "whole")


def test_a_line_is_printed_before_the_first_report(monkeypatch):
    monkeypatch.setattr(progress, "_FIRST_LINE", 0.01)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with Meter("whole", None):
        assert _shows(stream, "whole\n")
        with Meter("part", 2):
            assert _shows(stream, "part: 0 %\n")


def test_a_run_shows_progress_while_it_is_built_and_compiled(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    Experiment(task={"dim": 2}, training={"until": 1.0}).run(seeds=[0, 1])
    assert "building and compiling" in stream.getvalue()
    begin = len(stream.getvalue())
    Experiment(task={"dim": 2}, training={"until": 1.0}).run(progress=False)
    assert len(stream.getvalue()) == begin
