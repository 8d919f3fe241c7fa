"""The explorer, started: the server, what computes for it, and the folders that it may show."""

import gc
import sys
from collections.abc import Callable
from functools import partial
from urllib.parse import urlencode

from stepwell._util.process import configure
from stepwell.experiments import Experiment

from ._state import State

_SWITCH = 5e-4
"""Seconds after which a thread that computes lets another one run: answers are sent while the next is computed."""


def explore(
    port: int | None = None,
    *,
    experiment: Experiment | None = None,
    browser: bool = True,
    store: str | None = None,
    reproduction: str | None = None,
    warm: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve the explorer on loopback until it is interrupted.

    **Arguments:**

    - `port`: of 127.0.0.1; None for 5137 or the next that is free, 0 for any.
    - `experiment`: what the page begins with; by default a staircase of four drops.
    - `browser`: whether to open the page.
    - `store`: the store of runs, that is shown and that "store this run" writes to, or `"off"` for none; by default
      `$STEPWELL_STORE` or `stepwell-runs`.
    - `reproduction`: a folder that `stepwell reproduce` has made, whose figures are shown.
    - `warm`: whether programs for shapes that may come next are compiled while nothing is asked for.
    - `announce`: is called with the address once it answers.

    **Example:**

    >>> from stepwell.explorer import explore
    >>> explore(8000, browser=False)  # doctest: +SKIP
    http://127.0.0.1:8000/
    """
    configure()
    from . import _linear, _softmax, _training  # noqa: F401  # here rather than while the first page waits
    from ._engine import Engine
    from ._server import Explorer
    from ._stored import Library
    from ._view import view

    words = {} if experiment is None else State.of(experiment).query()
    library = Library(store, reproduction)
    explorer = Explorer(port, Engine(partial(view, library=library), warm=warm), library)
    sys.setswitchinterval(_SWITCH)
    address = explorer.address + (f"?{urlencode(words)}" if words else "")
    announce(address)
    try:
        explorer.run(address if browser else None)
    finally:
        gc.unfreeze()  # see `mark_warm`
