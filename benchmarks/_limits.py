"""What the machine can do at most: exponentials and bytes a second, on all its cores."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stepwell import native

from ._row import Row, Unavailable
from ._timing import interleaved

SOURCE = Path(__file__).with_name("_limits.c")
TURNS = 2000
"""As in the C file."""


class Limits(NamedTuple):
    """In float64."""

    exponentials: float
    bytes: float

    def seconds(self, *, exponentials: int, read: int) -> float:
        """The least time for so many exponentials, or for reading so many bytes, whichever is longer."""
        return max(exponentials / self.exponentials, read / self.bytes)

    def beside(self, row: Row, *, exponentials: int, read: int) -> Row:
        """The row of a time, with that limit."""
        note = f"limit: {exponentials:,} exponentials or {read / 2**20:,.1f} MiB read, on all cores at full speed"
        least = self.seconds(exponentials=exponentials, read=read)
        return row._replace(limit=least, note="; ".join(filter(None, (row.note, note))))


def limits(rounds: int, megabytes: int = 64) -> Limits:
    """Measured with the exponential of the native passes."""
    kernels = [native.kernel(SOURCE, "double", name) for name in ("exponentials", "reading")]
    if kernels[0] is None or kernels[1] is None:
        raise Unavailable("needs a C compiler (cc, or what CC names)")
    numbers = {kernels[0].target: jnp.zeros(2048), kernels[1].target: jnp.zeros(megabytes * 2**17)}
    calls = {target: jax.jit(jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((1,), np.float64))) for target in numbers}
    times = interleaved({name: lambda name=name: calls[name](numbers[name]) for name in numbers}, rounds=rounds)
    made, read = (times[target] for target in numbers)
    return Limits(TURNS * 2048 / made, megabytes * 2**20 / read)
