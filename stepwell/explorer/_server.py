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
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from stepwell._util.errors import InvalidInput

from ._engine import Engine
from ._page import FOLDER, page
from ._session import Session
from ._state import State, read_all
from ._stored import Library

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORT = 5137  # the usual port; where it is taken, the next that is free
MOST_SESSIONS = 120  # open pages. One more is refused with a message.
_FORGET_AFTER = 20
"""Seconds after which a page that has vanished, and does not answer, is forgotten. A closed one is at once."""
_LARGEST_MESSAGE = 1 << 20  # bytes of a message from a page, and of a request

_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page loads nothing from elsewhere. Of scripts inside it, `_Page` allows the one by which Bokeh starts."""


class _Headers(web.OutputTransform):
    def transform_first_chunk(self, status_code: int, headers: Any, chunk: bytes, finishing: bool) -> Any:
        headers.setdefault("Content-Security-Policy", _POLICY)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers.pop("Access-Control-Allow-Origin", None)
        if not headers.get("Cache-Control"):
            headers["Cache-Control"] = "no-cache"
        return status_code, headers, chunk


class _Guarded(web.Application):
    def __init__(self, routes: list[Any], hosts: set[str], sessions: Callable[[], int], **settings: Any):
        super().__init__(routes, transforms=[_Headers], **settings)
        self._hosts, self._sessions = hosts, sessions

    def find_handler(self, request: HTTPServerRequest, **options: Any) -> Any:
        refusal = self._refusal(request)
        if refusal is not None:
            return self.get_handler_delegate(request, _Refuse, {"refusal": refusal})
        return super().find_handler(request, **options)

    def _refusal(self, request: HTTPServerRequest) -> tuple[int, str] | None:
        """Status and message, or None for what may be answered."""
        if not request.headers.get_list("Host"):
            return 400, "A request must name its host."
        if request.host.lower() not in self._hosts:
            return 403, "This server answers to its own address alone."
        origin = request.headers.get("Origin")
        foreign = origin is not None and _host_of(origin) not in self._hosts
        # A link on another page may open this one, at the top of a tab; nothing else may come from there.
        opened = request.headers.get("Sec-Fetch-Dest") == "document" and request.path == "/"
        site = request.headers.get("Sec-Fetch-Site", "none")
        if foreign or (site not in ("same-origin", "none") and not opened):
            return 403, "This server answers to its own pages alone."
        if request.path in ("/", "/ws") and self._sessions() >= MOST_SESSIONS:
            return 503, f"{MOST_SESSIONS} pages are open, and no more can be. Close some, and try again."
        return None


def _host_of(origin: str) -> str:
    """Host and port of an origin; an empty string if it is malformed, as `http://[`."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


class _Handler(web.RequestHandler):
    def say(self, status: int, message: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(message + "\n")


class _Refuse(_Handler):
    def initialize(self, refusal: tuple[int, str]) -> None:
        self._refusal = refusal

    def prepare(self) -> None:
        self.say(*self._refusal)


class _Page(_Handler):
    def initialize(self, explorer: "Explorer") -> None:
        self._explorer = explorer

    def get(self) -> None:
        several = self.get_query_argument("task.kind", "") == "multitask"
        stored = self.get_query_argument("mode", "") == "stored"
        html, script = page("stored" if stored else "softmax" if several else "linear", self._explorer.token)
        self.set_header("Content-Security-Policy", f"{_POLICY}; script-src 'self' {script}")
        self.finish(html)


class _Alive(web.RequestHandler):
    """A page asks whether there is a server when it has lost its own."""

    def get(self) -> None:
        self.finish({"alive": True})


class _Socket(WebSocketHandler):
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


Words = dict[str, str]
Answer = dict[str, Any] | tuple[dict[str, str], bytes]  # what is sent as JSON, or headers and content


class _Answer(_Handler):
    """What a function makes of the words of the address, in a thread. What is wrong with them is said with status 400.

    With `method` "POST" it must be asked for by the page itself.
    """

    def initialize(self, explorer: "Explorer", answer: Callable[..., Answer], method: str = "GET") -> None:
        self._explorer, self._answer, self.SUPPORTED_METHODS = explorer, answer, (method,)

    async def get(self, *parts: str) -> None:
        explorer = self._explorer
        words = {name: given[-1].decode("utf-8", "replace") for name, given in self.request.query_arguments.items()}
        try:
            work = partial(self._answer, explorer.library, words, *parts)
            made = await asyncio.get_running_loop().run_in_executor(explorer.files, work)
            if not isinstance(made, dict):
                for name, value in made[0].items():
                    self.set_header(name, value)
            self.finish(made if isinstance(made, dict) else made[1])
        except InvalidInput as error:
            self.say(400, str(error))
        except Exception as error:
            log.exception("a download failed")
            self.say(500, f"{type(error).__name__}: {error}"[:500])

    async def post(self) -> None:
        token = self.request.headers.get("X-Stepwell-Token", "").encode("utf-8", "replace")  # of strings ASCII alone
        if secrets.compare_digest(token, self._explorer.token.encode()):
            await self.get()
        else:
            self.say(403, "Only the page itself can store a run; reload it, and try again.")


def _states(words: Words) -> list[State]:
    states, problems = read_all(words)
    wrong = [message for some in problems for message in some.values()]
    if wrong:
        raise InvalidInput("\n".join(wrong))
    return states


def _download(library: Library, words: Words, kind: str) -> Answer:
    from ._downloads import download

    name, media, content = download(_states(words), kind)
    return {"Content-Type": media, "Content-Disposition": f'attachment; filename="{name}"'}, content


def _store(library: Library, words: Words) -> Answer:
    """Put the runs of the address into the store that the command names."""
    from ._downloads import store_run

    if library.store is None:
        raise InvalidInput("There is no store: it is off. Start `stepwell explore --store DIR`.")
    return {"names": [store_run(state, library.store) for state in _states(words)]}


def _figure(library: Library, words: Words, name: str, ending: str) -> Answer:
    """A figure of the reproduction, which may hold no script of its own."""
    media, content = library.figure(name, ending)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return {"Content-Security-Policy": policy, "Content-Type": media}, content


_ANSWERS = {
    r"/download/([a-z]+)": _download,
    r"/runs": lambda library, words: library.runs(words.get("where", "").split(), sort=words.get("sort") or None),
    r"/figures": lambda library, words: {"figures": library.figures()},
    r"/figure/([A-Za-z0-9_-]+)\.([a-z]+)": _figure,
}


class Explorer:
    """The running server, at a `port` of loopback: None for the usual one or the next that is free, 0 for any."""

    def __init__(self, port: int | None, engine: Engine, library: Library):
        self.token = secrets.token_urlsafe(24)
        self.engine, self.library = engine, library
        self.sessions: set[Session] = set()
        self.files = ThreadPoolExecutor(1, "stepwell-files")
        listening = _listen(port)
        self.port: int = listening.getsockname()[1]
        hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}
        own = {"explorer": self}
        routes = [
            (r"/", _Page, own),
            (r"/ws", _Socket, own),
            (r"/alive", _Alive),
            (r"/page/([\w.-]+)", web.StaticFileHandler, {"path": str(FOLDER)}),
            (r"/bokeh/(bokeh\.min\.js)", web.StaticFileHandler, {"path": str(server_path() / "static" / "js")}),
            (r"/store", _Answer, {**own, "answer": _store, "method": "POST"}),
            *((path, _Answer, {**own, "answer": answer}) for path, answer in _ANSWERS.items()),
        ]
        application = _Guarded(
            routes,
            hosts,
            lambda: len(self.sessions),
            websocket_max_message_size=_LARGEST_MESSAGE,
            websocket_ping_interval=_FORGET_AFTER,
            websocket_ping_timeout=_FORGET_AFTER,
        )
        self._http = HTTPServer(application, max_body_size=_LARGEST_MESSAGE)
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
    for number in range(PORT, PORT + 20) if port is None else (port,):
        try:
            return bind_sockets(number, HOST)[0]
        except OSError as error:
            if port is not None:
                reason = "it is taken" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
                raise InvalidInput(f"cannot listen on port {port} ({reason}); choose another by --port") from None
    raise InvalidInput(f"the ports from {PORT} to {PORT + 19} are taken; choose another by --port")
