"""Ctrl-C as a request that a loop looks at, rather than an exception wherever it happens to strike.

An exception raised inside a callback of JAX is swallowed, and one between two assignments leaves half a record.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interruptible:
    """`with Interruptible() as ctrl_c: … if ctrl_c.pressed: break`. Pressed a second time, it raises as ever."""

    def __init__(self):
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> "Interruptible":
        # Only the main thread may set a handler. Where Ctrl-C is ignored (nohup) or somebody else's, it stays so.
        here = threading.current_thread() is threading.main_thread()
        if here and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
