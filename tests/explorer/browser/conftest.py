"""One server and one browser for all tests of the page."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from explorer_page import SECONDS, settle
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

_START = "import sys; from stepwell.explorer import explore; from stepwell.experiments import load_kinds; "
_START += "load_kinds(sys.argv[4]); "
_START += "explore(int(sys.argv[1]), browser=False, store=sys.argv[2], reproduction=sys.argv[3], warm=False)"


class Server:
    """A server in a process of its own; `stop` kills it, and `start` starts it again at the same address."""

    def __init__(self, folder: Path, own_file: Path):
        self._own = own_file
        self.store, self.reproduction = folder / "store", folder / "reproduction"
        self._log = folder / "server.log"
        self._port = 0
        self.start()

    def start(self) -> None:
        command = [
            sys.executable,
            "-c",
            _START,
            str(self._port),
            str(self.store),
            str(self.reproduction),
            str(self._own),
        ]
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
            )
        late = threading.Timer(SECONDS, self._process.kill)  # a server that says nothing must not hold up the tests
        late.start()
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        late.cancel()
        assert self.address.startswith("http://127.0.0.1:"), self.log()
        self._port = int(self.address.rstrip("/").rpartition(":")[2])

    def stop(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, own_file: Path) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("explorer")
    figures = folder / "reproduction" / "figures"
    figures.mkdir(parents=True)
    (figures / "linear-fig1.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"/>')
    (folder / "secret.svg").write_text("<svg/>")
    one = Server(folder, own_file)
    yield one
    one.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium, "these tests need a browser: apt-get install chromium"
    with sync_playwright() as playwright:
        # The sandbox cannot be made as root, and the page is our own.
        one = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture
def open_page(server: Server, browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open the page at an address and wait until it shows its view. Errors, and requests elsewhere, fail the test."""
    wrong: list[str] = []
    contexts = []

    def open_one(query: str = "", *, ready: bool = True, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * SECONDS)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if _is_error(message) else None)
        page.on("request", lambda asked: None if _own(asked.url, server.address) else wrong.append(asked.url))
        page.goto(server.address + query)
        if ready:
            settle(page)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert wrong == []


def _is_error(message: ConsoleMessage) -> bool:
    """Refusals that the page explains are no errors."""
    return message.type == "error" and "status of 400" not in message.text


def _own(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:" + address))
