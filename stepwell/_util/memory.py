"""Memory: what would not fit is refused early, and compiled programs are freed before they take all memory maps."""

import contextlib
import ctypes
import gc
import math
import os
from pathlib import Path
from time import monotonic

from .errors import WouldNotFit

_GIB = 2**30
_MAPS, _ALLOWED = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_PART = 0.5
"""Of the maps that are allowed, what may be used: a single group of runs may add hundreds."""
_EVERY = 1.0
"""Seconds between two counts, each of which takes milliseconds."""
_next_count = 0.0


def available_memory() -> int:
    """Bytes that can be allocated now: Linux's own estimate, elsewhere the physical memory."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as lines:
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
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


def free_programs_if_many() -> bool:
    """Free all compiled programs of JAX if they take half of the memory maps that this process may have.

    JAX keeps every compiled program, each in some maps, and Linux ends a process beyond `vm.max_map_count` of them,
    65530 by default, by a segmentation fault: so would a sweep over thousands of shapes, or a page that lives for days.
    They are compiled anew when they are needed. Where there is no `/proc`, nothing is done.

    **Returns:** whether they were freed.
    """
    global _next_count
    if monotonic() < _next_count:
        return False
    _next_count = monotonic() + _EVERY
    try:
        many = _MAPS.read_bytes().count(b"\n") > _PART * int(_ALLOWED.read_text())
    except (OSError, ValueError):
        return False
    if many:
        free_programs()
    return many


def free_programs() -> None:
    """Free all compiled programs of JAX, and give their memory back to the system.

    What was frozen for the garbage collector is so again at the end.
    """
    import jax

    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # where there is no glibc, which would keep the freed memory
        ctypes.CDLL(None).malloc_trim(0)
    if frozen:
        gc.freeze()
