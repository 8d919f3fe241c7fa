"""Memory maps of this process: JAX keeps every compiled program, each in some, and Linux allows a process so many.

A process beyond `vm.max_map_count`, 65530 by default, cannot map memory any more and ends with a segmentation fault: a
sweep over thousands of shapes in one process would, and so would a worker, or a page, that lives for days.
"""

import gc
from pathlib import Path
from time import monotonic

_MAPS, _ALLOWED = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_PART = 0.5
"""Of the maps that are allowed, what may be used: a single group of runs may add hundreds."""
_EVERY = 1.0
"""Seconds between two counts, each of which takes milliseconds."""
_next_count = 0.0


def free_programs_if_many() -> bool:
    """Free all compiled programs of JAX if they take half of the memory maps that this process may have.

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
    """Free all compiled programs of JAX. What was frozen for the garbage collector is so again at the end."""
    import jax

    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    jax.clear_caches()
    gc.collect()
    if frozen:
        gc.freeze()
