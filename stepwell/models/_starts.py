"""What initialisations have in common."""

import functools
import itertools
import math
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


def gaussians(shapes: tuple[tuple[int, ...], ...], deviations: tuple[float, ...], *, key: RandomKey) -> list[Array]:
    """Independent Gaussian arrays of the given shapes and standard deviations.

    One draw, taken apart: each call of a generator would be compiled by itself, which takes longer than all the rest.
    """
    parts = _standard(key, tuple(shapes))
    return [deviation * part for deviation, part in zip(deviations, parts, strict=True)]


@functools.partial(jax.jit, static_argnums=1)
def _standard(key: RandomKey, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    sizes = [math.prod(shape) for shape in shapes]
    parts = jnp.split(jax.random.normal(key, (sum(sizes),)), list(itertools.accumulate(sizes))[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def deviation(scale: float, scaling: Scaling, matrix_size: int) -> float:
    """The standard deviation of an entry; `matrix_size` counts the entries of the whole weight, over all heads."""
    _check.one_of("scaling", scaling, get_args(Scaling))
    scale = _check.number("scale of the initial weights", scale, least=0.0)
    return scale if scaling == "plain" else scale / matrix_size**0.5


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
