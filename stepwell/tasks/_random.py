"""Random numbers: block by block in threads ahead of their use, and inside compiled programs."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from stepwell import native
from stepwell._util.types import RandomKey

THREADS = min(8, native.cores())
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


def generator(key: RandomKey, number: int = 0) -> np.random.Generator:
    """The counter-based Philox under a key; each `number` is a stream of its own.

    For draws that are made once, outside compiled programs. JAX's generator is as fast, but takes up to a second to
    compile for every new shape.
    """
    (word,) = _words(key)
    return np.random.Generator(np.random.Philox(key=[word, np.uint64(number)]))


def generators(keys: Key[Array, " key"]) -> Iterator[np.random.Generator]:
    """`generator(key)` of each key, which are read together."""
    for word in _words(keys):
        yield np.random.Generator(np.random.Philox(key=[word, np.uint64(0)]))


def _words(key: Array) -> np.ndarray:
    words = np.asarray(jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key)
    return np.bitwise_xor.reduce(np.atleast_2d(words).astype(np.uint32).view(np.uint64), axis=-1)


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
