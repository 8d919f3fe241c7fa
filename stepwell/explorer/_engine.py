"""What computes for all pages: one engine a server."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ._state import State
from ._view import Report, Stop, View
from ._warm import mark_warm, neighbours, warm

log = logging.getLogger(__name__)

_IDLE = 1.5
"""Seconds without a request after which programs for other shapes are compiled."""
_KEPT = 32
"""Views that are kept for all pages: the first view of each, and links that are opened again."""


class Engine:
    """Threads for what takes a moment, another for what takes longer, and a few views.

    **Arguments:**

    - `compute`: takes a state, `report` and `stop`, and returns a view (`stepwell.explorer._view.view`).
    - `warm`: whether to compile programs for shapes that may come next.
    - `threads`: that compute at the same time what takes a moment.
    """

    def __init__(self, compute: Callable[..., View], *, warm: bool = True, threads: int = 2):
        self.quick = ThreadPoolExecutor(threads, "stepwell-quick")
        self.long = ThreadPoolExecutor(1, "stepwell-long")
        self._compute = compute
        self._kept: OrderedDict[State, View] = OrderedDict()
        self._lock = threading.Lock()
        self._background = ThreadPoolExecutor(1, "stepwell-warm")
        self._warming: Future[None] | None = None
        self._next_to_warm: State | None = None
        self._warms, self.closed = warm, False
        self._busy, self._last = 0, time.monotonic()

    def view(self, state: State, report: Report, stop: Stop) -> View:
        """The view of a state: one that is kept, or computed in the thread that asks."""
        with self._lock:
            if state in self._kept:
                self._kept.move_to_end(state)
                return self._kept[state]
        made = self._compute(state, report=report, stop=stop)
        mark_warm(state)
        if state.mode != "stored" and "time" in made:
            with self._lock:
                self._kept[state] = made
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return made

    def has(self, state: State) -> bool:
        """Whether its view is kept."""
        return state in self._kept

    def count(self, change: int) -> None:
        """Note that a request is computed (1), or is no longer (-1)."""
        with self._lock:
            self._busy += change
            self._last = time.monotonic()

    def warm_near(self, state: State) -> None:
        """Compile programs that the next move of a control may need, one after another, while nothing else is asked."""
        with self._lock:
            self._next_to_warm = state
            if self._warms and not self.closed and (self._warming is None or self._warming.done()):
                self._warming = self._background.submit(self._warm)

    def _warm(self) -> None:
        while not self.closed:
            with self._lock:
                state, self._next_to_warm = self._next_to_warm, None
            if state is None:
                return
            for near in neighbours(state):
                while not self.closed and (self._busy or time.monotonic() - self._last < _IDLE):
                    time.sleep(0.2)
                if self.closed or self._next_to_warm is not None:
                    break
                try:
                    warm(near)
                except Exception:  # it will be said when the state is asked for
                    log.debug("warming failed", exc_info=True)

    def close(self) -> None:
        self.closed = True
        self._background.shutdown(wait=False, cancel_futures=True)
        self.quick.shutdown(wait=False, cancel_futures=True)
        self.long.shutdown(wait=False, cancel_futures=True)
