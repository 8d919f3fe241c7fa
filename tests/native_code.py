"""C of the kernels, called from Python without XLA."""

import ctypes
import os
from pathlib import Path

import numpy as np

from stepwell.native._compile import compile_library
from stepwell.native._kernels import SOURCES
from stepwell.native._processor import is_x86, levels

LEVELS = levels()
"""For what kernels are compiled in tests: every level that the processor has."""


def is_fused(level: str | None = None) -> bool:
    """Whether kernels round a product and a sum once: at this level, or by default."""
    chosen = level or os.environ.get("STEPWELL_NATIVE")
    return not is_x86() or (chosen if chosen in LEVELS else levels()[0]) != "baseline"


def units(found, expected) -> float:
    """The largest difference, in units of the last digit."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    unit = np.spacing(np.abs(expected)).astype(float)
    return float(np.max(np.abs(found.astype(float) - expected.astype(float)) / unit, initial=0.0))


class Compiled:
    """A C text compiled as the kernels are; it may include their files, as "normals.c"."""

    def __init__(self, text: str, folder: Path, element: str, level: str):
        source, built = folder / "text.c", folder / "text.so"
        included = [f'#include "{SOURCES / path.name}"' for path in SOURCES.iterdir()]
        for line in included:
            text = text.replace(f'#include "{Path(line[10:-1]).name}"', line)
        source.write_text(text)
        compile_library(source, element, level, built)
        self.call = ctypes.CDLL(str(built))
        self.dtype = np.dtype(np.float64 if element == "double" else np.float32)
        self.lanes = ctypes.c_int.in_dll(self.call, "vector_bytes").value // self.dtype.itemsize

    def in_groups(self, values, group: int) -> tuple[np.ndarray, np.ndarray]:
        """The values repeated up to a whole number of groups of vectors, and room for as many results."""
        values = np.asarray(values, self.dtype)
        size = group * self.lanes
        given = np.resize(values, -(-values.size // size) * size)
        return given, np.empty_like(given)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
