"""The server of the explorer: on loopback alone, for pages that it served itself.

Every request must name this host and port, and come from no other site: other pages in the same browser, and names of
other hosts that point here, get nothing. Nothing that is asked for is ever a path of the file system.
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from bokeh.util.paths import server_path
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from tornado.routing import Router
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from stepwell._util.errors import InvalidInput
from stepwell.store import Store

from ._engine import Engine
from ._page import FOLDER, page
from ._session import Session, configurations
from ._state import State
from ._stored import Library

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORT = 5137
"""The usual port; where it is taken, the next that is free."""
MOST_SESSIONS = 120
"""Open pages. One more is refused with a message."""
_FORGET_AFTER = 20
"""Seconds after which a page that has vanished, and does not answer, is forgotten. A closed one is at once."""
_LARGEST_MESSAGE = 1 << 20
"""Bytes of a message from a page, and of a request."""
_MOST_FILES = 16
"""Downloads that wait."""

_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page loads nothing from elsewhere. Of scripts inside it, `_Page` allows the one by which Bokeh starts."""


class _Headers(web.OutputTransform):
    """Headers of every answer."""

    def transform_first_chunk(self, status_code: int, headers: Any, chunk: bytes, finishing: bool) -> Any:
        headers.setdefault("Content-Security-Policy", _POLICY)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers.pop("Access-Control-Allow-Origin", None)
        if not headers.get("Cache-Control"):
            headers["Cache-Control"] = "no-cache"
        return status_code, headers, chunk


class _Guard(Router):
    """Hands on what may be answered, and refuses the rest."""

    def __init__(self, application: web.Application, hosts: set[str], sessions: Callable[[], int]):
        self._application, self._sessions = application, sessions
        self._refusing = web.Application([(".*", _Refuse)], transforms=[_Headers])
        self._hosts = hosts

    def find_handler(self, request: HTTPServerRequest, **options: Any) -> Any:
        message = self._refusal(request)
        if message is not None:
            request.refusal = message  # pyright: ignore[reportAttributeAccessIssue]
            return self._refusing.find_handler(request, **options)
        return self._application.find_handler(request, **options)

    def _refusal(self, request: HTTPServerRequest) -> tuple[int, str] | None:
        """Status and message, or None for what may be answered."""
        if request.headers.get_list("Host") and request.host.lower() not in self._hosts:
            return 403, "This server answers to its own address alone."
        if not request.headers.get_list("Host"):
            return 400, "A request must name its host."
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() not in self._hosts:
            return 403, "This server answers to its own pages alone."
        site = request.headers.get("Sec-Fetch-Site", "none")
        # A link on another page may open this one, at the top of a tab; nothing else may come from there.
        opened = request.headers.get("Sec-Fetch-Dest") == "document" and request.path == "/"
        if site not in ("same-origin", "none") and not opened:
            return 403, "This server answers to its own pages alone."
        if request.path in ("/", "/ws") and self._sessions() >= MOST_SESSIONS:
            return 503, f"{MOST_SESSIONS} pages are open, and no more can be. Close some, and try again."
        return None


class _Refuse(web.RequestHandler):
    def prepare(self) -> None:
        status, message = self.request.refusal  # pyright: ignore[reportAttributeAccessIssue]
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(message + "\n")


class _Handler(web.RequestHandler):
    def initialize(self, explorer: "Explorer") -> None:
        self.explorer = explorer

    def words(self) -> dict[str, str]:
        """The words of the address, the last of each."""
        return {name: given[-1].decode("utf-8", "replace") for name, given in self.request.query_arguments.items()}

    def say(self, status: int, message: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(message + "\n")

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """The result of some work, or None after an answer that says why there is none."""
        if self.explorer.files_waiting >= _MOST_FILES:
            self.say(503, "Too many downloads at once; try again in a moment.")
            return None
        self.explorer.files_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.explorer.files, work)
        except InvalidInput as error:
            self.say(400, str(error))
        except Exception as error:
            log.exception("a download failed")
            self.say(500, f"{type(error).__name__}: {error}"[:500])
        finally:
            self.explorer.files_waiting -= 1
        return None

    def states(self) -> list[State] | None:
        """The configurations of the address, or None after an answer that says what is wrong with it."""
        states, problems = configurations(self.words())
        wrong = [message for some in problems for message in some.values()]
        if wrong:
            self.say(400, "\n".join(wrong))
            return None
        return states


class _Page(_Handler):
    """The page: experiments, or what was computed before."""

    def get(self) -> None:
        several = self.get_query_argument("task.kind", "") == "multitask"
        stored = self.get_query_argument("mode", "") == "stored"
        html, script = page("stored" if stored else "softmax" if several else "linear", self.explorer.token)
        self.set_header("Content-Security-Policy", f"{_POLICY}; script-src 'self' {script}")
        self.finish(html)


class _Socket(WebSocketHandler):
    """The connection of an open page."""

    def initialize(self, explorer: "Explorer") -> None:
        self._explorer = explorer
        self._session: Session | None = None

    def open(self, *_: str) -> None:
        self.set_nodelay(True)  # or small messages would wait for the acknowledgement of earlier ones, up to 40 ms
        self._session = Session(self._send, self._explorer.engine)
        self._explorer.sessions.add(self._session)

    async def _send(self, content: bytes) -> None:
        with contextlib.suppress(WebSocketClosedError):  # the page has been closed meanwhile
            await self.write_message(content, binary=True)

    def on_message(self, message: str | bytes) -> None:
        if self._session is not None and isinstance(message, str):
            self._session.ask(message)

    def on_close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._explorer.sessions.discard(self._session)


class _Alive(_Handler):
    """Whether there is a server: a page asks when it has lost its own."""

    def get(self) -> None:
        self.write({"alive": True})


class _Download(_Handler):
    """A file made from the configurations of the address."""

    async def get(self, kind: str) -> None:
        from ._downloads import KINDS, download

        if kind not in KINDS:
            self.say(404, f"There is no download {kind}; there are {', '.join(KINDS)}.")
            return
        states = self.states()
        if states is None:
            return
        made = await self.in_thread(partial(download, states, kind))
        if made is None:
            return
        name, media, content = made
        self.set_header("Content-Type", media)
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.finish(content)


class _Keep(_Handler):
    """Put the runs of the address into the store that the command names."""

    async def post(self) -> None:
        if not secrets.compare_digest(self.request.headers.get("X-Stepwell-Token", ""), self.explorer.token):
            self.say(403, "Only the page itself can store a run; reload it, and try again.")
            return
        states = self.states()
        if states is None:
            return
        names = await self.in_thread(partial(_stored, states, self.explorer.library.store))
        if names is not None:
            self.finish({"names": names})


def _stored(states: list[State], store: Store | None) -> list[str]:
    """Run the experiments of some states, put them into the store, and return their names."""
    from ._downloads import store_run

    if store is None:
        raise InvalidInput("There is no store: $STEPWELL_STORE is off. Start `stepwell explore --store DIR`.")
    return [store_run(state, store) for state in states]


class _Runs(_Handler):
    """Runs of the store, filtered and sorted as `stepwell runs ls` does."""

    async def get(self) -> None:
        where = self.get_query_argument("where", "").split()
        sort = self.get_query_argument("sort", "") or None
        answer = await self.in_thread(partial(self.explorer.library.runs, where[:20], sort=sort))
        if answer is not None:
            self.finish(answer)


class _Figures(_Handler):
    """Figures of the reproduction."""

    async def get(self) -> None:
        answer = await self.in_thread(self.explorer.library.figures)
        if answer is not None:
            self.finish({"figures": answer})


class _Figure(_Handler):
    """One of them, which may hold no script of its own."""

    async def get(self, name: str, ending: str) -> None:
        made = await self.in_thread(partial(self.explorer.library.figure, name, ending))
        if made is not None:
            self.set_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:")
            self.set_header("Content-Type", made[0])
            self.finish(made[1])


class Explorer:
    """The running server.

    **Arguments:**

    - `port`: of loopback; None for the usual one or the next that is free, 0 for any.
    - `engine`: what computes.
    - `library`: the store and the reproduction that are shown.
    """

    def __init__(self, port: int | None, engine: Engine, library: Library):
        self.token = secrets.token_urlsafe(24)
        self.engine, self.library = engine, library
        self.sessions: set[Session] = set()
        self.files = ThreadPoolExecutor(1, "stepwell-files")
        self.files_waiting = 0
        listening = _listen(port)
        self.port: int = listening.getsockname()[1]
        hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}
        own = {"explorer": self}
        application = web.Application(
            [
                (r"/", _Page, own),
                (r"/ws", _Socket, own),
                (r"/page/(.*)", web.StaticFileHandler, {"path": str(FOLDER)}),
                (r"/bokeh/(bokeh\.min\.js)", web.StaticFileHandler, {"path": str(server_path() / "static" / "js")}),
                (r"/alive", _Alive, own),
                (r"/download/([a-z]+)", _Download, own),
                (r"/store", _Keep, own),
                (r"/runs", _Runs, own),
                (r"/figures", _Figures, own),
                (r"/figure/([A-Za-z0-9_-]+)\.([a-z]+)", _Figure, own),
            ],
            transforms=[_Headers],
            websocket_max_message_size=_LARGEST_MESSAGE,
            websocket_ping_interval=_FORGET_AFTER,
            websocket_ping_timeout=_FORGET_AFTER,
        )
        guard = _Guard(application, hosts, lambda: len(self.sessions))
        self._http = HTTPServer(guard, max_body_size=_LARGEST_MESSAGE)  # pyright: ignore[reportArgumentType]
        self._http.add_sockets([listening])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def run(self, opened: str | None = None) -> None:
        """Serve until a signal comes; the browser is opened at the address `opened`, if there is one."""
        if opened is not None:
            threading.Thread(target=webbrowser.open, args=(opened,), daemon=True).start()
        try:
            IOLoop.current().start()
        finally:
            self.engine.close()
            self.files.shutdown(wait=False, cancel_futures=True)
            self._http.stop()


def _listen(port: int | None) -> socket.socket:
    """A socket of loopback that listens."""
    for number in range(PORT, PORT + 20) if port is None else (port,):
        try:
            return bind_sockets(number, HOST)[0]
        except OSError as error:
            if port is not None:
                reason = "it is taken" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
                raise InvalidInput(f"cannot listen on port {port} ({reason}); choose another by --port") from None
    raise InvalidInput(f"the ports from {PORT} to {PORT + 19} are taken; choose another by --port")
