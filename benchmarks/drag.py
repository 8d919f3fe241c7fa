"""Dragging a slider, from the input event to the paint, in a browser: Bokeh's server beside Dash.

The page is the least that does it: one slider, and one curve that Python computes from its value. A driver moves the
mouse over the slider at some sixty events a second, in chromium without a screen. A delay runs from the event that
gave the slider a value to the second frame after the plot got that value or a newer one; delays of all values count,
those of values that were left out included. "Bokeh as it comes" lacks TCP_NODELAY, which the explorer sets.
"""

import importlib.util
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

from ._browser import browser_page, drag
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
    if importlib.util.find_spec("dash") is None:
        raise Unavailable("needs Dash: .venv/bin/pip install dash")
    seconds, rounds = (1.0, 1) if quick else (6.0, 3)
    names = ("Bokeh", "Bokeh as it comes", "Dash")
    delays: dict[str, list[float]] = {name: [] for name in names}
    rates: dict[str, list[float]] = {name: [] for name in names}
    lost = 0
    with (
        _serve("_drag_bokeh", "--no-delay") as bokeh,
        _serve("_drag_bokeh") as plain,
        _serve("_drag_dash") as dash,
        browser_page() as page,
    ):
        page.add_init_script(_WATCH)
        for _ in range(rounds):
            for name, address in zip(names, (bokeh, plain, dash), strict=True):
                handle = ".dash-slider-thumb" if name == "Dash" else ".noUi-handle"
                page.goto(address)
                page.wait_for_selector(handle)
                if name == "Dash":
                    page.wait_for_selector(".js-plotly-plot .main-svg")
                    page.evaluate(_PLOTLY)
                page.wait_for_timeout(500)
                took = drag(page, page.locator(handle).first, seconds)
                page.wait_for_timeout(1000)
                seen = page.evaluate("window.drag")
                delays[name] += seen["delays"]
                rates[name].append(seen["updates"] / took)
                lost += seen["values"] - len(seen["delays"])
    for name in names[:2]:
        for part in (50, 95):
            ours, beside = (1e-3 * float(np.percentile(delays[one], part)) for one in (name, "Dash"))
            number = f"{len(delays[name])} and {len(delays['Dash'])} slider values"
            yield Row(f"drag to paint, {part} % within: {name}, beside Dash", ours, "s", beside, note=number)
    for name in names:
        yield Row(f"paints a second while dragging: {name}", float(np.mean(rates[name])), "")
    yield Row("slider values whose paint never came", lost, "", most=0, check=True)


@contextmanager
def _serve(module: str, *options: str) -> Iterator[str]:
    """The address of a page that answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", f"benchmarks.{module}", str(port), *options]
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
