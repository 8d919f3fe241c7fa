"""Ctrl-C as a request that a loop checks for, rather than an exception at any point of the program.

An exception raised inside a callback of JAX is swallowed, and one between two assignments leaves half a record.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

_AGAIN = 0.02
"""Seconds after which a signal that came at the wrong moment is sent again."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`, as Python's own handler does, but not where it would be lost.

    JAX has a callback in Python's garbage collector, which runs at any time; what is raised there is printed and
    forgotten. Then the signal is sent again.
    """
    if frame is not None and frame.f_code.co_name == "_xla_gc_callback":
        again = threading.Timer(_AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        raise KeyboardInterrupt


@contextlib.contextmanager
def delivering_interrupts() -> Iterator[None]:
    """SIGINT (Ctrl-C) is delivered in this context. Custom handlers, and SIGINT ignored (nohup), are left in place."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not here or before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Interruptible:
    """`with Interruptible() as ctrl_c: … if ctrl_c.pressed: break`. Pressed twice, it raises `KeyboardInterrupt`."""

    def __init__(self):
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> "Interruptible":
        # Only the main thread may set a handler. Custom handlers, and SIGINT ignored (nohup), are left in place.
        here = threading.current_thread() is threading.main_thread()
        if here and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            interrupt(number, frame)
        self.pressed = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
