"""How often Python looks for garbage. Imports and tracing make many objects that stay, and looking takes time."""

import contextlib
import gc
from collections.abc import Iterator

SELDOM = 50_000
"""New objects after which it looks; the usual 700 cost a command 3 to 8 % of its time."""


@contextlib.contextmanager
def collected_seldom() -> Iterator[None]:
    """Within this."""
    usual = gc.get_threshold()
    gc.set_threshold(SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
