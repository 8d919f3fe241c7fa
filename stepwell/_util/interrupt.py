"""Signals that ask a program to end (Ctrl-C, SIGTERM, SIGHUP), as requests that a loop checks for.

As an exception raised inside a callback of JAX one is swallowed, and between two assignments it leaves half a record.
So a run looks at `Interruptible.pressed` where it can stop, and returns what it has done.
"""

import collections
import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_AGAIN = 0.02
"""Seconds after which a signal that came at the wrong moment is sent again."""
_URGENT = 1.0
"""Ctrl-C pressed three times within so many seconds gives up what remains to be done."""
_DEFAULT: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals, and the handlers that may be replaced: custom ones, and signals ignored (nohup), are left in place."""
if sys.platform != "win32":
    _DEFAULT[signal.SIGHUP] = signal.SIG_DFL

_first_signal: int | None = None


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`, as Python's own handler does.

    In JAX's callback of Python's garbage collector it would be printed and forgotten: there the signal is sent again.
    """
    _remember(number)
    if frame is not None and frame.f_code.co_name == "_xla_gc_callback":
        _send_later(number)
    else:
        raise KeyboardInterrupt


@contextlib.contextmanager
def delivering_interrupts() -> Iterator[None]:
    """SIGINT (Ctrl-C), SIGTERM and SIGHUP raise `KeyboardInterrupt` in this context; custom handlers stay in place."""
    global _first_signal
    _first_signal = None
    before = _install(interrupt)
    try:
        yield
    finally:
        _restore(before)


def exit_status() -> int:
    """The exit status of a process that ended because of a signal: 128 and the number of the first that arrived."""
    return 128 + (signal.SIGINT if _first_signal is None else _first_signal)


def interrupted() -> str:
    """The word "interrupted", with the name of the signal unless it was Ctrl-C: for the message of a run."""
    number = None if _outermost is None else _outermost.signal
    return "interrupted" if number in (None, signal.SIGINT) else f"interrupted by {signal.Signals(number).name}"


class Interruptible:
    """`with Interruptible() as ctrl_c: … if ctrl_c.pressed: break`: a run that a signal ends, with what it has done.

    SIGTERM and SIGHUP count as Ctrl-C does. Further signals are acknowledged on standard error, and wait. Ctrl-C
    pressed three times within a second raises `KeyboardInterrupt`. Contexts inside another one see the same signals.

    `around=True` is for what comes before and after a loop that has a context of its own. Until that loop begins,
    Ctrl-C raises `KeyboardInterrupt`; SIGTERM waits for the loop, lest the process be killed. `holding=True` is for a
    program around a run, which has its data to bring to safety. Until the loop begins every signal raises
    `KeyboardInterrupt`, and from then on none does until `release`.

    If the run was over when Ctrl-C was pressed, it is sent again as soon as the results have been returned (not with
    `holding`: the program knows). SIGTERM and SIGHUP are not: they would kill the process, which still has the results
    to save. Only the main thread gets signals. Custom handlers, and signals ignored (nohup), are left in place.
    """

    def __init__(self, *, around: bool = False, holding: bool = False):
        self.signal: int | None = None
        """The first signal that arrived."""
        self._obeyed = False
        self._given_up = False
        self._holding = holding
        self._held = holding
        self._begun = not (around or holding)
        self._presses: collections.deque[float] = collections.deque(maxlen=3)
        self._shared: Interruptible = self
        self._before: dict[int, Any] = {}

    @property
    def pressed(self) -> bool:
        """Whether a signal arrived. Who asks ends the run."""
        self._shared._obeyed |= self._shared.signal is not None
        return self._shared.signal is not None

    def release(self) -> None:
        """The data are safe: giving up is possible from here on, and happens here if it was asked for before."""
        self._holding = False
        if self._given_up:
            raise KeyboardInterrupt

    def __enter__(self) -> "Interruptible":
        global _outermost
        if threading.current_thread() is not threading.main_thread():
            return self
        if _outermost is not None:
            self._shared = _outermost
            _outermost._begun |= self._begun
            return self
        self._before = _install(self._press)
        _outermost = self
        return self

    def _press(self, number: int, frame: FrameType | None) -> None:
        if not self._begun and (self._holding or number == signal.SIGINT):
            interrupt(number, frame)
            return
        _remember(number)
        first = self.signal is None
        self.signal = number if first else self.signal
        if number == signal.SIGINT:
            self._presses.append(time.monotonic())
            self._given_up |= len(self._presses) == 3 and self._presses[2] - self._presses[0] <= _URGENT
            if self._given_up and not self._holding:
                interrupt(number, frame)
                return
        advice = "; Ctrl-C three times within a second gives up" if number == signal.SIGINT else ""
        _acknowledge(number, "ending the run …" if first else f"saving …{advice}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        global _outermost
        if _outermost is not self:
            return
        _outermost = None
        _restore(self._before)
        if kind is not None or self._held:
            return
        if self._given_up:
            raise KeyboardInterrupt  # a loop took the first one for its own
        if self.signal == signal.SIGINT and not self._obeyed:
            _send_later(signal.SIGINT)


_outermost: Interruptible | None = None


def interruptible(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function with a loop in it that is `Interruptible`: a signal does not take away what it makes of the loop."""

    @functools.wraps(function)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        with Interruptible(around=True):
            return function(*arguments, **options)

    return call


def _install(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Set a handler for the signals whose handler is the default or `interrupt`; returns the handlers before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in _DEFAULT}
    before = {number: old for number, old in before.items() if old in (_DEFAULT[number], interrupt)}
    for number in before:  # SIGINT is the first, and below the last: nothing is raised half-way
        signal.signal(number, handler)
    return before


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in reversed(handlers.items()):
        signal.signal(number, handler)


def _remember(number: int) -> None:
    global _first_signal
    if _first_signal is None:
        _first_signal = number


def _send_later(number: int) -> None:
    again = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _acknowledge(number: int, text: str) -> None:
    """A line on standard error, past Python's buffers: one of them may be in use where the signal came."""
    with contextlib.suppress(OSError, ValueError):
        if sys.__stderr__ is not None:
            echoed = "\n" if sys.__stderr__.isatty() else ""  # after the terminal's ^C
            line = f"{echoed}stepwell: {signal.Signals(number).name} received; {text}\n"
            os.write(sys.__stderr__.fileno(), line.encode())
