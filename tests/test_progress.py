"""Progress that cannot be shown does not end the job."""

import io
import sys

import pytest

from stepwell import _progress
from stepwell._progress import Meter


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
    monkeypatch.setattr(_progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(_progress, "_LINE_EVERY", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with Meter("training", 3) as meter:
        for done in (1, 2, 3):
            meter.update(done, "loss 0.3")
    assert stream is None or stream.calls > 0
