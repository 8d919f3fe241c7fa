"""Dragging a slider, from the input event to the paint, in a browser: Bokeh's server beside Dash.

The page is the least that does it: one slider, and one curve that Python computes from its value. A driver moves the
mouse over the slider at some sixty events a second, in chromium without a screen. A delay runs from the event that
gave the slider a value to the second frame after the plot got that value or a newer one; delays of all values count,
those of values that were left out included.
"""

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ._row import Row, Unavailable

_WATCH = """
let event = 0, waiting = [];
for (const kind of ["pointerdown", "pointermove", "mousemove"])
    window.addEventListener(kind, one => event = performance.now(), true);
const drag = {delays: [], values: 0, updates: 0,
    moved(value) { drag.values += 1; waiting.push([value, event]); },
    shown(value) {
        const place = waiting.findIndex(one => Math.abs(one[0] - value) < 1e-9);
        if (place < 0) return;
        const answered = waiting.splice(0, place + 1);
        drag.updates += 1;
        requestAnimationFrame(() => requestAnimationFrame(() => {
            const now = performance.now();
            for (const [, begun] of answered) drag.delays.push(now - begun);
        }));
    }};
window.drag = drag;
window.dash_clientside = {drag: {moved(value) { drag.moved(value); return ""; }}};
"""
_PLOTLY = """() => {
    const plot = document.querySelector(".js-plotly-plot");
    plot.on("plotly_afterplot", () => window.drag.shown(plot.layout.meta));
}"""


def run(quick: bool) -> Iterator[Row]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise Unavailable("needs Debian's chromium: apt-get install chromium")
    for name in ("playwright", "dash"):
        if importlib.util.find_spec(name) is None:
            raise Unavailable(f"needs {name}: .venv/bin/pip install {name}")
    from playwright.sync_api import sync_playwright

    seconds, rounds = (1.0, 1) if quick else (6.0, 3)
    names = ("Bokeh", "Dash")
    delays: dict[str, list[float]] = {name: [] for name in names}
    rates: dict[str, list[float]] = {name: [] for name in names}
    lost = 0
    with (
        _serve("_drag_bokeh") as bokeh,
        _serve("_drag_dash") as dash,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(rounds):
            for name, address in zip(names, (bokeh, dash), strict=True):
                handle = ".dash-slider-thumb" if name == "Dash" else ".noUi-handle"
                page = browser.new_page(viewport={"width": 900, "height": 600})
                page.add_init_script(_WATCH)
                page.goto(address)
                page.wait_for_selector(handle)
                if name == "Dash":
                    page.wait_for_selector(".js-plotly-plot .main-svg")
                    page.evaluate(_PLOTLY)
                page.wait_for_timeout(500)
                took = _drag(page, handle, seconds)
                page.wait_for_timeout(1000)
                seen = page.evaluate("window.drag")
                delays[name] += seen["delays"]
                rates[name].append(seen["updates"] / took)
                lost += seen["values"] - len(seen["delays"])
                page.close()
        browser.close()
    for part in (50, 95):
        bokeh_delay, dash_delay = (1e-3 * float(np.percentile(delays[name], part)) for name in names)
        number = f"{len(delays['Bokeh'])} and {len(delays['Dash'])} slider values"
        yield Row(f"drag to paint, {part} % within: Bokeh, beside Dash", bokeh_delay, "s", dash_delay, note=number)
    for name in names:
        yield Row(f"paints a second while dragging: {name}", float(np.mean(rates[name])), "")
    yield Row("slider values whose paint never came", lost, "", most=0, check=True)


def _drag(page, handle: str, seconds: float) -> float:
    """Move the handle to and fro, and return how long it took."""
    box = page.locator(handle).first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    begun = time.perf_counter()
    while (now := time.perf_counter() - begun) < seconds:
        page.mouse.move(x + 200 * np.sin(2 * np.pi * now / 3), y)
        time.sleep(1 / 60)
    page.mouse.up()
    return time.perf_counter() - begun


@contextmanager
def _serve(module: str) -> Iterator[str]:
    """The address of a page that answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", f"benchmarks.{module}", str(port)]
    server = subprocess.Popen(
        command, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}/"
        for _ in range(300):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None:
                    raise Unavailable(f"benchmarks.{module} ended with status {server.returncode}") from None
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait()
