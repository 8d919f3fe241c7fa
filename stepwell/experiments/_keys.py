"""The random keys of an experiment, all of which follow from its seed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell._util.types import RandomKey

NAMES = ("initialization", "train", "in_weight_test", "in_context_test", "task", "fixed_task")
"""Of the keys, in the order of their numbers."""


class Keys:
    """A random key for each thing that is drawn: initial weights, data, test data and the task.

    A key is made when it is asked for: most runs need two or three.
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


def keys_of(seed: Any) -> Keys:
    """Return the random keys of a seed, or of an array of seeds.

    Key number i of seed s has the two words (i, s), so that the key of the initial weights is `jax.random.key(seed)`.

    **Arguments:**

    - `seed`: an integer from 0 to 2**32 - 1, or an array of them.

    **Returns:** the `Keys`, each of the shape of `seed`.

    **Example:**

    >>> import jax
    >>> from stepwell.experiments import keys_of
    >>> bool(keys_of(3).initialization == jax.random.key(3))
    True
    """
    return Keys(seed)
