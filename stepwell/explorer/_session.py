"""One open page: requests come as text, and answers go as messages of one piece (`packed`).

A request is the words of an address, with the number that the page gave it. At most one is computed and one waits; a
newer one takes the place of the one that waits. What a page already has is not computed or sent again.
"""

import json
import logging
import math
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np
from tornado.ioloop import IOLoop

from stepwell._util.errors import InvalidInput

from ._engine import Engine, is_warm
from ._state import Problems, State, read_all
from ._view import Cancelled, plain

log = logging.getLogger(__name__)

_PATIENCE = 0.5  # seconds after which work that has shown nothing yet stops for a newer request
_REPORT_EVERY = 0.2  # seconds between reports of longer work
Message = dict[str, Any]  # what is sent to the page; `view`, if there is one, has arrays among its values


class _Request(NamedTuple):
    number: int
    states: list[State]
    problems: list[Problems]


class Session:
    """What computes for a page: `send` sends bytes to it. All but the work happens in the thread of the server."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], engine: Engine):
        self._send = send
        self._engine = engine
        self._loop = IOLoop.current()
        self._waiting: _Request | None = None
        self._computing: _Request | None = None
        self._stop = False
        self._newer = threading.Event()  # set while a request waits
        self._shown: dict[int, State] = {}  # what the page has, by the place of the configuration

    def close(self) -> None:
        self._stop, self._waiting = True, None

    def ask(self, text: str) -> None:
        """A request replaces the one that waits."""
        try:
            asked = json.loads(text)
            number, words = int(asked["number"]), asked["words"]
            if asked.get("cancel"):
                self.close()
                return
            changed = asked.get("changed")
            words = {str(name): str(word) for name, word in words.items()}
            states, problems = read_all(words, first=None if changed is None else str(changed))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            log.warning("malformed request: %s", error)
            return
        self._waiting = _Request(number, states, problems)
        self._newer.set()
        self._next()

    def _next(self) -> None:
        if self._computing is not None or self._waiting is None:
            return
        self._computing, self._waiting, self._stop = self._waiting, None, False
        self._newer.clear()
        longer = any(state.long and not self._engine.has(state) for state in self._computing.states)
        try:
            (self._engine.long if longer else self._engine.quick).submit(self._work, self._computing)
        except RuntimeError:  # the server is ending
            self._computing = None

    def _work(self, request: _Request) -> None:
        """All views of a request, in a thread of the engine."""
        self._engine.count(1)
        self._shown = {place: state for place, state in self._shown.items() if place < len(request.states)}
        try:
            for place, (state, problems) in enumerate(zip(request.states, request.problems, strict=True)):
                self._answer(request.number, place, state, problems)
        except Cancelled:
            pass
        except Exception as error:  # whatever went wrong is an answer: the page must not wait for ever
            log.exception("a view failed")
            self._post({"number": request.number, "failed": f"{type(error).__name__}: {error}"[:500]})
        finally:
            self._engine.count(-1)
        done = {"number": request.number, "done": len(request.states), "stopped": self._stop}
        self._loop.add_callback(self._finish, packed(done))
        self._engine.warm_near(request.states[0])

    def _answer(self, number: int, place: int, state: State, problems: Problems) -> None:
        head: Message = {"number": number, "place": place, "problems": problems}
        if state.mode == "explore":
            head |= {"words": dict(state.words), "values": state.values(), "kinds": state.kinds()}
            if place not in self._shown:
                self._post(head)  # controls need not wait for a figure
        if self._shown.get(place) == state or (problems and place in self._shown):
            self._post(head)  # the figure stays as it is
            return
        begun, last = time.monotonic(), -math.inf

        def stop() -> bool:
            seen = last > begun or time.monotonic() - begun > _PATIENCE
            return self._stop or self._engine.closed or (seen and self._waiting is not None)

        def report(part: float, partial_view: dict[str, Any]) -> None:
            nonlocal last
            if time.monotonic() - last >= _REPORT_EVERY:
                last = time.monotonic()
                self._post({**head, "part": part, "view": partial_view})

        if not self._engine.has(state) and not is_warm(state):
            self._post({**head, "compiling": True})
        self._shown.pop(place, None)
        try:
            view = self._engine.view(state, report, stop, self._newer)
        except InvalidInput as error:
            view = {"problems": {"run" if state.mode == "stored" else "": str(error)}}
        if "time" in view:
            self._shown[place] = state
        self._post({**head, "problems": {**view.get("problems", {}), **problems}, "view": view})

    def _post(self, message: Message) -> None:
        self._loop.add_callback(self._send, packed(message))

    async def _finish(self, last: bytes) -> None:
        """Begin the next when all has gone: a page that reads slowly is asked for less."""
        await self._send(last)
        self._computing = None
        self._next()


def packed(message: Message) -> bytes:
    """A message as bytes: the length of a head, little endian in four bytes; the head as JSON; and arrays.

    The head, filled up with spaces, and each array end at a multiple of 8 bytes. The head has what the message has,
    and `arrays`: for each its kind (`f4` or `f8`), shape and place. Curves keep float64; weights, which are shown as
    colors, go as float32.
    """
    head = {name: value for name, value in message.items() if name != "view"}
    pieces: list[bytes] = []
    if "view" in message:
        view, arrays, place = message["view"], {}, 0
        for name, value in view.items():
            if isinstance(value, np.ndarray):
                kind = "f4" if value.ndim > 2 else "f8"
                content = np.ascontiguousarray(value, f"<{kind}").tobytes()
                content += bytes(-len(content) % 8)
                arrays[name] = [kind, list(value.shape), place]
                place += len(content)
                pieces.append(content)
        head["view"] = {name: value for name, value in view.items() if name not in arrays}
        head["arrays"] = arrays
    text = json.dumps(plain(head), allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join([struct.pack("<I", len(text)), text, *pieces])
