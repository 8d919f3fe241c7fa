"""Progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing for short jobs.

A terminal may go away, and a disk that a line goes to may be full: then nothing is shown, and the job goes on.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

_PATIENCE = 1.0
"""Seconds before a bar appears."""
_FIRST_LINE = 5.0
"""Seconds before the first line where there is no terminal."""
_LINE_EVERY = 15.0
"""Seconds between lines where there is no terminal."""
_LONG = 3600.0
"""Seconds: a job that will take longer says so."""


_listeners: list[Callable[[str, float], None]] = []
_open: list["Meter"] = []
"""Meters that are shown, of which the last has the screen."""
_screen = threading.RLock()


@contextlib.contextmanager
def listening(listener: Callable[[str, float], None]) -> Iterator[None]:
    """Every meter in this context, shown or not, calls `listener(what, part)`: the part of its work that is done."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Meter:
    """`with Meter("training", total) as meter: meter.update(done, "loss 0.31")`.

    It appears by itself where the first update is late, such as after compilation. A meter within another one takes its
    place; the outer one returns where nothing else is shown for as long as it took to appear.

    `total`: None where it is not known what part is done, and nothing is updated.
    `steady`: every part of the total takes about as long, so that after a second it is known how long the rest will.
    """

    def __init__(self, what: str, total: float | None, *, shown: bool = True, steady: bool = False):
        self._steady = steady
        self._first: tuple[float, float] | None = None
        self._what = what
        self._total = total
        self._shown = shown
        self._start = time.monotonic()
        self._last_line = self._start
        self._done, self._note = 0.0, ""
        self._bar: Any = None
        self._item: Any = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> "Meter":
        if self._shown and sys.stderr is not None:
            with _screen:
                if _open:
                    _open[-1]._clear()
                _open.append(self)
                self._wait()
        return self

    def _wait(self) -> None:
        """Appear after a while, also where nothing is reported until then."""
        with contextlib.suppress(ValueError):  # of a stream that is closed
            self._timer = threading.Timer(_PATIENCE if sys.stderr.isatty() else _FIRST_LINE, self._appear)
            self._timer.daemon = True
            self._timer.start()

    def _appear(self) -> None:
        with _screen:
            if _open and _open[-1] is self and self._bar is None:
                line, self._last_line = self._last_line == self._start, time.monotonic()
                self._show(line)

    def _clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.stop()
        self._bar = None

    def update(self, done: float, note: str = "") -> None:
        """Say how much of the total is done."""
        assert self._total is not None
        for listener in _listeners:
            listener(self._what, done / self._total)
        now, self._done, self._note = time.monotonic(), done, note
        # From the first report on: what is before it may be compilation.
        self._first = self._first or (now, done)
        if not self._shown or sys.stderr is None or now - self._start < _PATIENCE:
            return
        with _screen:
            if _open and _open[-1] is self:
                line = now - self._last_line >= _LINE_EVERY
                self._last_line = now if line else self._last_line
                self._show(line, lambda: self._warn(now, done))

    def _show(self, line: bool, first: Callable[[], None] = lambda: None) -> None:
        """Draw the bar, or where there is no terminal print a `line`."""
        part = "" if self._total is None else f": {100 * self._done / self._total:.0f} % {self._note}".rstrip()
        try:
            first()
            if sys.stderr.isatty():
                self._draw(self._done, self._note)
            elif line:
                print(f"{self._what}{part}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self._shown = False

    def _warn(self, now: float, done: float) -> None:
        """One line, once, if the rest will take more than an hour."""
        assert self._first is not None and self._total is not None
        begun, before = self._first
        if not self._steady or now - begun < _PATIENCE or done <= before:
            return
        self._steady = False
        rest = (now - begun) / (done - before) * (self._total - done)
        if rest > _LONG:
            print(f"{self._what} will take about {_duration(rest)} at this pace; Ctrl-C ends it", file=sys.stderr)

    def _draw(self, done: float, note: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TimeRemainingColumn

            ahead = "{task.description}", BarColumn(), "{task.percentage:>3.0f} %", TimeRemainingColumn()
            self._bar = Progress(*ahead, "{task.fields[note]}", console=Console(stderr=True), transient=True)
            self._item = self._bar.add_task(self._what, total=self._total, note=note)
            self._bar.start()
        self._bar.update(self._item, completed=done, note=note)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        with _screen:
            self._clear()
            if self in _open:
                _open.remove(self)
                if _open:
                    _open[-1]._wait()


def _duration(seconds: float) -> str:
    for unit, length in (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 60:.3g} minutes"
