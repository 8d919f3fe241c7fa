"""Work that is begun before it is asked for."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """`make(item)` for each, in order; while one is used, threads make the next, as many as there are cores.

    It helps where `make` leaves Python to others while it works, as NumPy's generators do. No more are held than are
    being made.
    """
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        begun = deque()
        for item in items:
            begun.append(pool.submit(make, item))
            if len(begun) > threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
