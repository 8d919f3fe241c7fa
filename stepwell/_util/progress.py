"""Progress on standard error: a bar on a terminal, a line now and then elsewhere, nothing for short jobs.

A terminal may go away, and a disk that a line goes to may be full: then nothing is shown, and the job goes on.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

_PATIENCE = 1.0
"""Seconds before a bar appears."""
_LINE_EVERY = 15.0
"""Seconds between lines where there is no terminal."""
_LONG = 3600.0
"""Seconds: a job that will take longer says so."""


_listeners: list[Callable[[str, float], None]] = []


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

    `steady`: every part of the total takes about as long, so that after a second it is known how long the rest will.
    """

    def __init__(self, what: str, total: float, *, shown: bool = True, steady: bool = False):
        self._steady = steady
        self._first: tuple[float, float] | None = None
        self._what = what
        self._total = total
        self._shown = shown
        self._start = time.monotonic()
        self._last_line = self._start
        self._bar: Any = None
        self._item: Any = None

    def __enter__(self) -> "Meter":
        return self

    def update(self, done: float, note: str = "") -> None:
        """Say how much of the total is done."""
        for listener in _listeners:
            listener(self._what, done / self._total)
        now = time.monotonic()
        # From the first report on: what is before it may be compilation.
        self._first = self._first or (now, done)
        if not self._shown or sys.stderr is None or now - self._start < _PATIENCE:
            return
        try:
            self._warn(now, done)
            if sys.stderr.isatty():
                self._draw(done, note)
            elif now - self._last_line >= _LINE_EVERY:
                self._last_line = now
                print(f"{self._what}: {100 * done / self._total:.0f} % {note}".rstrip(), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self._shown = False

    def _warn(self, now: float, done: float) -> None:
        """One line, once, if the rest will take more than an hour."""
        assert self._first is not None
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
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.stop()


def _duration(seconds: float) -> str:
    for unit, length in (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 60:.3g} minutes"
