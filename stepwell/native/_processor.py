"""What the processor can do, and for what kernels are compiled."""

import os
import platform
import subprocess
import sys
from pathlib import Path

LEVELS: dict[str, tuple[str, ...]] = {
    "avx512": ("-march=x86-64-v4",),
    "avx2": ("-march=x86-64-v3",),
    "baseline": ("-march=x86-64-v2",),
}
"""Instruction sets that a wheel has kernels for, the best first, with the compiler's options; of x86-64.

Other processors have "baseline" alone, which is whatever their compiler takes for granted (NEON on 64-bit ARM).
"""

_FLAGS = {
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "avx2": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"},
    "baseline": set(),
}
"""The processor flags that each level needs, as Linux names them."""


def is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def levels() -> tuple[str, ...]:
    """Return the levels of vector instructions that this processor has, the best first.

    **Returns:** some of "avx512", "avx2" and "baseline", the last always.

    **Example:**

    >>> sw.native.levels()[-1]
    'baseline'
    """
    if not is_x86():
        return ("baseline",)
    flags = _flags()
    return tuple(level for level, needed in _FLAGS.items() if needed <= flags)


def options(level: str) -> tuple[str, ...]:
    """Options of the compiler for a level."""
    return LEVELS[level] if is_x86() else ()


def cores() -> int:
    """Return how many cores this process may use.

    **Returns:** on Linux the number that it is allowed, elsewhere that of the machine.

    **Example:**

    >>> sw.native.cores() >= 1
    True
    """
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """Return the name of the processor, as the system gives it.

    **Returns:** the model of the processor, or where that is not known its architecture.

    **Example:**

    >>> isinstance(sw.native.processor_name(), str)
    True
    """
    return _described("model name") or platform.processor() or platform.machine()


def _flags() -> set[str]:
    """What the processor can do, in the words of `_FLAGS`; nothing where the system does not say."""
    if sys.platform == "darwin":  # on Intel's processors; the same names in capitals
        command = ["sysctl", "-n", "machdep.cpu.features", "machdep.cpu.leaf7_features"]
        return set(subprocess.run(command, capture_output=True, text=True).stdout.lower().split())
    return set(_described("flags").split())


def _described(entry: str) -> str:
    """An entry of the first processor in /proc/cpuinfo; empty elsewhere than on Linux, which leaves the baseline."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(entry)), "")
