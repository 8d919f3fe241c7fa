"""Whose turn it is to compute: one at a time, and what shows something first goes before what completes it.

Python runs one thread at a time, so that more would only hold each other up.
"""

import threading
from collections import deque

FIRST, REST = 0, 1
"""What shows something, and what completes it."""


class Turns:
    """`take` waits for a turn and `give` ends it; among equals, who came first is first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = False
        self._waiting: tuple[deque[object], deque[object]] = (deque(), deque())

    def take(self, rank: int) -> None:
        own = object()
        with self._changed:
            self._waiting[rank].append(own)
            self._changed.wait_for(lambda: not self._taken and self._next() is own)
            self._waiting[rank].popleft()
            self._taken = True

    def give(self) -> None:
        with self._changed:
            self._taken = False
            self._changed.notify_all()

    def _next(self) -> object | None:
        return next((queue[0] for queue in self._waiting if queue), None)
