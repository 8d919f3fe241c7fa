"""What initialisations have in common."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._types import RandomKey

LabelBlocks = Literal["zero", "random"]
Scaling = Literal["plain", "per-matrix"]
"""Standard deviation of a random weight: the scale itself, or the scale over the square root of the matrix's size."""


def gaussian(
    shape: tuple[int, ...], scale: float, *, scaling: Scaling = "plain", matrix_size: int = 1, key: RandomKey
) -> Array:
    """Independent Gaussian entries. `matrix_size` counts the entries of the whole weight, over all heads."""
    _check.one_of("scaling", scaling, get_args(Scaling))
    scale = _check.number("scale of the initial weights", scale, least=0.0)
    deviation = scale if scaling == "plain" else scale / matrix_size**0.5
    return deviation * jax.random.normal(key, shape)


def clear(weight: Array, where: tuple, label_blocks: LabelBlocks) -> Array:
    """Zero the label block of a weight, unless it is to be random."""
    _check.one_of("label_blocks", label_blocks, get_args(LabelBlocks))
    return weight.at[where].set(0.0) if label_blocks == "zero" else weight


def head_scales(scale, heads: int) -> Float[Array, " head"]:
    """One scale for all heads, or one for each."""
    scales = jnp.asarray(scale, dtype=float)
    if scales.ndim > 1 or (scales.ndim == 1 and scales.shape[0] != heads):
        raise InvalidInput(f"scale has shape {scales.shape}; give one number, or one for each of {heads} heads")
    return jnp.broadcast_to(scales, (heads,))


def scaled_to(weight: Float[Array, "head ..."], norms: Float[Array, " head"]) -> Float[Array, "head ..."]:
    """Each head's part of a weight, rescaled to the given Euclidean norm; a part that is zero stays zero."""
    axes = tuple(range(1, weight.ndim))
    found = jnp.sqrt(jnp.sum(weight**2, axis=axes))
    factor = jnp.where(found > 0, norms / jnp.where(found > 0, found, 1.0), 0.0)
    return weight * factor.reshape((-1,) + (1,) * len(axes))
