"""Progress that cannot be shown does not end the job."""

import io
import sys

import pytest

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
