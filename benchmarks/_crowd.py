"""Sessions of the explorer without a browser: each asks, waits for the answer, and pauses as a reader does."""

import asyncio
import json
import struct
import threading
import time

import numpy as np
from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

_PATIENCE = 30.0
"""Seconds after which a session has failed."""
_PAUSE = (2.0, 8.0)
"""Seconds between requests of a session."""


class Crowd(threading.Thread):
    """So many sessions for so many seconds, in a thread. They begin within the first quarter of that time.

    Afterwards there are `opened`, `shown` and `completed`, the seconds until a page was there, until the first of an
    answer came and until all of it had come; and `failures`.
    """

    def __init__(self, address: str, sessions: int, seconds: float):
        super().__init__()
        self.opened: list[float] = []
        self.shown: list[float] = []
        self.completed: list[float] = []
        self.failures: list[str] = []
        self._address, self._sessions, self._seconds = address, sessions, seconds

    def run(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        end = time.monotonic() + self._seconds
        await asyncio.gather(*(self._session(number, end) for number in range(self._sessions)))

    async def _session(self, number: int, end: float) -> None:
        rng = np.random.default_rng(number)
        try:
            await asyncio.sleep(rng.uniform(0, self._seconds / 4))
            begun = time.monotonic()
            await AsyncHTTPClient().fetch(self._address, request_timeout=_PATIENCE)
            connection = await websocket_connect(self._address.replace("http", "ws", 1) + "ws")
            self.opened.append(time.monotonic() - begun)
            asked = 0
            while time.monotonic() < end:
                asked += 1
                begun = time.monotonic()
                words = {"model.scale": f"{10 ** rng.uniform(-3, -1):.3g}"}
                await connection.write_message(json.dumps({"number": asked, "words": words}))
                shown = await asyncio.wait_for(_answered(connection, asked), _PATIENCE)
                self.shown.append(shown - begun)
                self.completed.append(time.monotonic() - begun)
                await asyncio.sleep(rng.uniform(*_PAUSE))
            connection.close()
        except Exception as error:
            self.failures.append(f"session {number}: {type(error).__name__}: {error}"[:200])


async def _answered(connection: WebSocketClientConnection, number: int) -> float:
    """Wait for all of an answer, and return when the first of it came."""
    shown = 0.0
    while True:
        content = await connection.read_message()
        if not isinstance(content, bytes):
            raise ConnectionError("the server closed the connection")
        head = json.loads(content[4 : 4 + struct.unpack("<I", content[:4])[0]])
        if head.get("failed") or head.get("problems"):
            raise RuntimeError(str(head))
        if "view" in head:
            shown = shown or time.monotonic()
        if head["number"] == number and "done" in head:
            if not shown:
                raise RuntimeError("done without a view")
            return shown
