"""What computes for all pages, in turns: one engine a server; and which programs are compiled.

Values are traced, so that one program serves every state of the same shapes.
"""

import gc
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from stepwell._util.memory import free_programs, free_programs_if_many

from ._state import State
from ._view import Report, Stop, View, view

log = logging.getLogger(__name__)

_IDLE = 1.5  # seconds without a request after which programs for other shapes are compiled
_KEPT = 32  # views that are kept for all pages: the first view of each, and links that are opened again
_PAUSE, _LONGEST_PAUSE = 2.0, 0.2
"""After the first that a request shows, a newer one may come for so many times as long as that took, and at most so
many seconds, before the rest is computed: during a drag the rest would only hold it up."""
_THREADS = 32  # requests that are under way, most of them waiting for their turn
FIRST, REST = 0, 1  # what shows something, and what completes it
_WARM: set[tuple[Any, ...]] = set()
_LOCK = threading.Lock()
MOST_SHAPES = 48  # shapes whose programs are kept: those of one take some 17 MB, so that all of them stay below 1 GiB
_TRACED = ("task.context", "training.steps", "record.points", "record.snapshots", "seed", "numerics")
"""Integers that a program on a loss in closed form is not compiled for; of steps, no more than how many digits they
have in binary."""
_NEAR = ("model.heads", "model.rank", "task.dim", "training.kind", "model.kind")
"""What is tried next, most likely first."""


def shapes_of(state: State) -> tuple[Any, ...]:
    """What the programs of a state are compiled for: kinds, words and integers, and how many values there are."""
    if state.experiment is None:
        return ()
    shapes: list[Any] = []
    for name, value in state.experiment.canonical().items():
        if isinstance(value, list):
            shapes.append((name, len(value)))
        elif name == "training.steps" and not state.long:
            shapes.append((name, value.bit_length()))
        elif not isinstance(value, float) and (state.long and name != "seed" or name not in _TRACED):
            shapes.append((name, value))
    return tuple(shapes)


def is_warm(state: State) -> bool:
    """Whether the programs of a state are compiled, so that its view takes no longer than its run."""
    return state.mode == "stored" or shapes_of(state) in _WARM


def mark_warm(state: State) -> None:
    """A view of the state was computed. Where there are too many programs, all are given up, and compiled anew."""
    with _LOCK:
        shapes = shapes_of(state)
        if shapes in _WARM:
            return
        if len(_WARM) >= MOST_SHAPES:
            free_programs()
            _WARM.clear()
        elif free_programs_if_many():
            _WARM.clear()
        _WARM.add(shapes)
        gc.collect()
        gc.freeze()  # programs are no garbage: looking through them would hold up all pages for a tenth of a second


def warm(state: State) -> None:
    if not is_warm(state):
        view(state)
        mark_warm(state)


def neighbors(state: State) -> list[State]:
    """States of other shapes, not compiled yet, that one move of a control leads to and that take a moment."""
    if state.mode == "stored":
        return []
    values, known, near = state.values(), state.kinds(), []
    for name in _NEAR:
        if name not in values:
            continue
        if name.endswith(".kind"):
            others = [kind for kind in known[name.partition(".")[0]] if kind != values[name]]
        else:
            others = [str(int(values[name]) + 1), str(int(values[name]) - 1)] if values[name] else []
        for other in others:
            made, problems = State.read({**state.words, name: other}, first=name)
            if not problems and not made.long and not is_warm(made) and made not in near:
                near.append(made)
    return near


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


class Engine:
    """Computes views by `compute(state, report=…, stop=…)`: what takes a moment in turns, what takes longer in a thread
    of its own; and keeps a few. With `warm` programs for shapes that may come next are compiled."""

    def __init__(self, compute: Callable[..., View], *, warm: bool = True):
        self.quick = ThreadPoolExecutor(_THREADS, "stepwell-quick")
        self.long = ThreadPoolExecutor(1, "stepwell-long")
        self._turns = Turns()
        self._compute = compute
        self._kept: OrderedDict[State, View] = OrderedDict()
        self._lock = threading.Lock()
        self._background = ThreadPoolExecutor(1, "stepwell-warm")
        self._warming: Future[None] | None = None
        self._next_to_warm: State | None = None
        self._warms, self.closed = warm, False
        self._busy, self._last = 0, time.monotonic()

    def view(self, state: State, report: Report, stop: Stop, newer: threading.Event) -> View:
        """The view of a state, kept or computed here; `newer` is set when the page has asked for another one."""
        with self._lock:
            if state in self._kept:
                self._kept.move_to_end(state)
                return self._kept[state]
        # Work on sequences, and compilation, leave Python to others most of the time.
        in_turn = is_warm(state) and not state.long
        made = self._in_turns(state, report, stop, newer) if in_turn else self._compute(state, report=report, stop=stop)
        mark_warm(state)
        if state.mode != "stored" and "time" in made:
            with self._lock:
                self._kept[state] = made
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return made

    def _in_turns(self, state: State, report: Report, stop: Stop, newer: threading.Event) -> View:
        begun: float | None = None

        def between(part: float, partial_view: View) -> None:
            nonlocal begun
            report(part, partial_view)
            self._turns.give()
            if begun is not None:
                newer.wait(min(_PAUSE * (time.monotonic() - begun), _LONGEST_PAUSE))
                begun = None
            self._turns.take(REST)

        self._turns.take(FIRST)
        begun = time.monotonic()
        try:
            return self._compute(state, report=between, stop=stop)
        finally:
            self._turns.give()

    def has(self, state: State) -> bool:
        return state in self._kept

    def count(self, change: int) -> None:
        """Note that a request is computed (1), or is no longer (-1)."""
        with self._lock:
            self._busy += change
            self._last = time.monotonic()

    def warm_near(self, state: State) -> None:
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
            for near in neighbors(state):
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
        for pool in (self._background, self.quick, self.long):
            pool.shutdown(wait=False, cancel_futures=True)
