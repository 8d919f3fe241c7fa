"""The random keys that the objects of an experiment are drawn from."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell._util.types import RandomKey


class Keys:
    """A random key for each thing that is drawn of a seed, made when it is asked for: most runs need two or three.

    Key number i of seed s has the two words (i, s), so that the key of the initial weights is `jax.random.key(seed)`.

    **Arguments:**

    - `seeds`: an integer from 0 to 2**32 - 1, or an array of them; each key has its shape.

    **Example:**

    >>> from stepwell.experiments import Keys
    >>> bool(Keys(3).initialization == jax.random.key(3))
    True
    """

    __slots__ = ("_seeds",)

    initialization: "RandomKey"
    train: "RandomKey"
    in_weight_test: "RandomKey"
    in_context_test: "RandomKey"
    task: "RandomKey"
    fixed_task: "RandomKey"

    def __init__(self, seeds: Any):
        self._seeds = seeds

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"there is no key {name}; there are {', '.join(NAMES)}")
        import jax
        import numpy as np

        seeds = np.asarray(self._seeds, dtype=np.uint32)
        words = np.stack([np.full_like(seeds, NAMES.index(name)), seeds], axis=-1)
        return jax.random.wrap_key_data(jax.device_put(words))  # splitting would have to be compiled


NAMES = tuple(Keys.__annotations__)
"""Of the keys, in the order of their numbers."""
