"""The explorer in a browser, from an input to its paint; frames while a run plays; and fifty pages at once.

A driver moves the mouse over the slider of the initial scale, in chromium without a screen. The page itself notes how
long each update took, from the event to the frame after the paint of its answer; and how long each input waited until
it or a newer one was painted. Then fifty sessions, without a browser, each change a control every few seconds for a
minute, and a browser among them drags as before.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ._browser import browser_page, drag
from ._crowd import Crowd
from ._row import Row

_DRAGGED = {
    "D = 4, H = 4, R = 1": "",
    "D = 8, H = 4, R = 1": "?task.dim=8&model.heads=4",
    "D = 8, H = 8, R = 1": "?task.dim=8",
    "D = 8, H = 4, R = 8": "?task.dim=8&model.heads=4&model.rank=8",
    "D = 8, H = 8, R = 8": "?task.dim=8&model.rank=8",
    "D = 4, H = 4, merged": "?model.kind=merged",
    "D = 8, H = 4, descent": "?task.dim=8&model.heads=4&training.kind=descent",
    "three regressions": "?task.kind=multitask&model.scale=0.004&seed=9",
}
_READY = "() => Boolean(window.stepwell?.ready) && !window.stepwell.busy"


def run(quick: bool) -> Iterator[Row]:
    seconds, sessions, minute = (1.0, 4, 3.0) if quick else (6.0, 50, 60.0)
    with _serve() as (address, process):
        with browser_page() as page:
            for name, query in list(_DRAGGED.items())[: 1 if quick else None]:
                yield _drag_row(page, name, address + query, seconds)
            page.click("#play")
            page.wait_for_timeout(1000 * min(seconds, 5.0))
            frames = np.diff(page.evaluate("() => window.stepwell.frames"))
            yield Row("frames a second while a run plays", float(1000 / frames.mean()), "")
            before = _memory(process)
            crowd = Crowd(address, sessions, minute)
            crowd.start()
            page.wait_for_timeout(1000 * minute / 4)
            together = _drag_row(page, f"D = 4, H = 4, R = 1, beside {sessions} sessions", address, minute / 4)
            crowd.join()
        yield together
        note = f"{len(crowd.shown)} requests of {sessions} sessions in {minute:.0f} s"
        for what, times in (
            ("a page is there", crowd.opened),
            ("the first of an answer is there", crowd.shown),
            ("all of an answer is there", crowd.completed),
        ):
            yield Row(f"{what}, 95 % within", float(np.percentile(times, 95)), "s", note=note)
        yield Row("memory of the server, beyond what it had", max(_memory(process) - before, 0), "bytes")
        yield Row("memory of the server", _memory(process), "bytes", note="with JAX and what it compiled")
        yield Row(
            "sessions that failed", len(crowd.failures), "", most=0, check=True, note="; ".join(crowd.failures[:2])
        )


def _drag_row(page: Any, name: str, address: str, seconds: float) -> Row:
    page.goto(address)
    _wait(page)
    page.wait_for_timeout(500)
    slider = page.locator('[data-for="model.scale"]')
    slider.evaluate("one => one.scrollIntoView({block: 'center'})")
    drag(page, slider, seconds, 0.3)
    _wait(page)
    page.wait_for_timeout(300)
    delays, waits = (np.array(page.evaluate(f"() => window.stepwell.{name}")) for name in ("latencies", "waits"))
    half, late = 1e-3 * np.percentile(delays, [50, 95])
    note = f"{delays.size} updates, half of them within {1e3 * half:.0f} ms; {waits.size} inputs, those that newer "
    note += f"ones overtook included: 95 % within {np.percentile(waits, 95):.0f} ms"
    return Row(f"drag to paint, 95 % within: {name}", float(late), "s", most=0.15, note=note)


def _wait(page: Any) -> None:
    end = time.monotonic() + 120
    while not page.evaluate(_READY):
        assert time.monotonic() < end, "the page does not answer"
        page.wait_for_timeout(50)


def _memory(process: subprocess.Popen[str]) -> int:
    """Bytes that a process holds."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return 0 if found is None else 1024 * int(found[1])


@contextmanager
def _serve() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "stepwell", "explore", "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"STEPWELL_STORE": "off"})
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+?/", process.stdout.readline())
        assert address is not None, "the explorer did not start"
        yield address[0], process
    finally:
        process.terminate()
        process.wait()
