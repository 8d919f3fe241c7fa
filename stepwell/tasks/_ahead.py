"""Work that is begun before it is asked for."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""As many as this process has cores; more than a few have nothing left to do."""

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """`make(item)` for each, in order; while one is used, threads make the next, `THREADS` of them.

    It helps where `make` leaves Python to others while it works, as NumPy's generators do. No more are held than are
    being made.
    """
    begun = deque()
    pool = ThreadPoolExecutor(THREADS)
    try:
        for item in items:
            begun.append(pool.submit(make, item))
            if len(begun) > THREADS:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
