"""How far figures are, on standard error: on a terminal one line that changes, elsewhere a line now and then."""

import contextlib
import shutil
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.figures import Progress

_LINE_EVERY = 15.0
"""Seconds between lines where there is no terminal."""
_ENOUGH = 2.0
"""Seconds after which time left is worth telling."""


class Status:
    """`status.show(progress)` as it comes, `status.remove(name)` when a figure is done."""

    def __init__(self) -> None:
        self._latest: dict[str, Progress] = {}
        self._line = False
        self._last = time.monotonic()

    def show(self, progress: "Progress") -> None:
        self._latest[progress.name] = progress
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                width = shutil.get_terminal_size().columns - 1
                line = " | ".join(map(_text, self._latest.values()))[:width]
                print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
                self._line = True
            elif time.monotonic() - self._last >= _LINE_EVERY:
                self._last = time.monotonic()
                print("; ".join(map(_text, self._latest.values())), file=sys.stderr, flush=True)

    def remove(self, name: str) -> None:
        self._latest.pop(name, None)
        self.clear()

    def clear(self) -> None:
        """Take the line away, for what is printed next."""
        if self._line:
            self._line = False
            with contextlib.suppress(OSError, ValueError):
                print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _text(progress: "Progress") -> str:
    left = progress.left
    rest = f", {_duration(left)} left of it" if left is not None and progress.seconds + left > _ENOUGH else ""
    return f"{progress.name}: {progress.what}, {100 * min(max(progress.part, 0.0), 1.0):.0f} %{rest}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
