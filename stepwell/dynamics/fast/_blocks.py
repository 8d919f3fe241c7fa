"""Sequences laid out for a native pass."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepwell import native


def blocked(array: Any, values: Any, kernel: native.Kernel) -> Array:
    """(sequences, …) as (block, …, lanes) with as many lanes as a vector of the processor holds, innermost in memory.

    What the last block lacks is zero, and counts nothing. `array` is the module of the values, `numpy` or `jax.numpy`.
    """
    lanes = kernel.vector_bytes // values.dtype.itemsize
    blocks = -(-values.shape[0] // lanes)
    padding = [(0, blocks * lanes - values.shape[0])] + [(0, 0)] * (values.ndim - 1)
    split = array.pad(values, padding).reshape(blocks, lanes, *values.shape[1:])
    moved = array.moveaxis(split, 1, -1)
    return moved if array is jnp else jax.device_put(np.ascontiguousarray(moved))
