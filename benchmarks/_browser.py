"""A browser without a screen, and a mouse that drags."""

import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ._row import Unavailable


@contextmanager
def browser_page() -> Iterator[Any]:
    """A page of Debian's chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise Unavailable("needs Debian's chromium: apt-get install chromium")
    if importlib.util.find_spec("playwright") is None:
        raise Unavailable("needs playwright: .venv/bin/pip install playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1300, "height": 900})
        browser.close()


def drag(page: Any, handle: Any, seconds: float, reach: float | None = None) -> float:
    """Move the mouse to and fro, held on a handle or inside a slider, at most 60 times a second.

    **Arguments:**

    - `page`, `handle`: of Playwright.
    - `seconds`: how long.
    - `reach`: how far to either side, as a part of the slider's width; None for 200 pixels.

    **Returns:** the seconds that it took.
    """
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    far = 200 if reach is None else reach * box["width"]
    page.mouse.move(x, y)
    page.mouse.down()
    begun = time.perf_counter()
    while (now := time.perf_counter() - begun) < seconds:
        page.mouse.move(x + far * np.sin(2 * np.pi * now / 3), y)
        time.sleep(1 / 60)
    page.mouse.up()
    return time.perf_counter() - begun
