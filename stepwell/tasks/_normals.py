"""Standard normals inside compiled programs."""

import jax
import numpy as np
from jaxtyping import Array, Float

from stepwell import native
from stepwell._util.types import RandomKey

_ELEMENTS = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}


def standard_normals(key: RandomKey, shape: tuple[int, ...], dtype=float) -> Float[Array, "..."]:
    """What `jax.random.normal` draws, to rounding; natively where it can be, which is faster to run and to compile.

    Native are JAX's default generator and numbering, on one device: the compiler cannot divide a native call among
    several.
    """
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    words = jax.random.key_data(key)
    default = jax.random.key_impl(key) == "threefry2x32" and jax.threefry_partitionable.value
    element = _ELEMENTS.get(dtype) if default and jax.local_device_count() == 1 else None
    kernel = None if element is None else native.kernel("normals", element)
    if kernel is None or words.ndim > 1:  # JAX says why several keys at once are wrong
        return jax.random.normal(key, shape, dtype)
    call = jax.ffi.ffi_call(kernel.target, jax.ShapeDtypeStruct(shape, dtype), vmap_method="expand_dims")
    return call(words)
