"""NumPy's random numbers under a JAX key."""

import jax
import jax.numpy as jnp
import numpy as np

from stepwell._util.types import RandomKey


def generator(key: RandomKey, number: int = 0) -> np.random.Generator:
    """The counter-based Philox under a key; each `number` is a stream of its own.

    For draws that are made once, outside compiled programs. JAX's generator is as fast, but takes up to a second to
    compile for every new shape.
    """
    words = np.asarray(jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key)
    word = np.bitwise_xor.reduce(words.astype(np.uint32).view(np.uint64))
    return np.random.Generator(np.random.Philox(key=[word, np.uint64(number)]))
