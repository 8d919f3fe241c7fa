"""Refuse early what would not fit in memory, and say how much it would have taken."""

import math
import os

from .errors import WouldNotFit

_GIB = 2**30


def available_memory() -> int:
    """Bytes that can be allocated now: Linux's own estimate, elsewhere the physical memory."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no such call on this system: let the allocation speak for itself
        return 2**62


def require_memory(needed: int, *, what: str, instead: str) -> None:
    """Raise `WouldNotFit` if `needed` bytes for `what` exceed nine tenths of the available memory."""
    free = available_memory()
    if needed > 0.9 * free:
        size = needed / _GIB if needed < 2**80 else math.inf
        words = f"about {size:.1f}" if size < 1e6 else "over a million"
        raise WouldNotFit(f"{what} needs {words} GiB, and {free / _GIB:.1f} GiB are free; {instead}")


def require_arrays(*shapes: tuple[int, ...], what: str, instead: str) -> None:
    """Raise `WouldNotFit` if float64 arrays of these shapes exceed the available memory, each with a copy of it."""
    require_memory(2 * 8 * sum(map(math.prod, shapes)), what=what, instead=instead)
