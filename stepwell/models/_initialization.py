"""What initializations have in common, and what scores are multiplied by."""

import functools
import math
from typing import Literal, get_args

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays
from stepwell._util.types import RandomKey

LabelBlocks = Literal["zero", "random"]
Scheme = Literal["plain", "per-head", "stacked"]
"""How the standard deviations of random separate weights follow from one scale; see `deviations_of`."""
MultiHeadScheme = Literal["plain", "uniform", "identity", "identity-qk", "opposite"]
"""How initial weights of multi-head attention follow from one scale; see `MultiHeadAttention.random`."""


def gaussians(shapes: tuple[tuple[int, ...], ...], deviations: tuple[float, ...], *, key: RandomKey) -> list[Array]:
    """Independent Gaussian arrays of the given shapes and standard deviations.

    One draw, which NumPy takes apart where it is not traced: every other operation of JAX would be compiled for these
    shapes alone, which takes longer than all the rest. The draw is rounded up to a power of two, so that few sizes are
    compiled; number i of a key does not depend on how many are drawn.
    """
    require_weights(*shapes)
    sizes = [math.prod(shape) for shape in shapes]
    drawn = _standard(key, 1 << max(sum(sizes) - 1, 1023).bit_length())
    traced = isinstance(key, Tracer)  # in a function that is compiled as a whole, or by `eqx.filter_vmap`
    parts = np.split(drawn if traced else np.asarray(drawn), np.cumsum(sizes))[:-1]
    scaled = (deviation * part.reshape(shape) for deviation, part, shape in zip(deviations, parts, shapes, strict=True))
    return [each if isinstance(each, Tracer) else jax.device_put(each) for each in scaled]


def uniforms(shapes: tuple[tuple[int, ...], ...], bounds: tuple[float, ...], *, key: RandomKey) -> list[Array]:
    r"""Independent arrays, uniform between minus and plus a bound: $2\Phi(z) - 1$ of a standard Gaussian z is so."""
    drawn = gaussians(shapes, (2**-0.5,) * len(shapes), key=key)
    return [bound * jax.lax.erf(part) for bound, part in zip(bounds, drawn, strict=True)]


@functools.partial(jax.jit, static_argnums=1)
def _standard(key: RandomKey, count: int) -> Float[Array, " numbers"]:
    return jax.random.normal(key, (count,))


def require_weights(*shapes: tuple[int, ...]) -> None:
    """Raise `WouldNotFit` if weights of these shapes would not."""
    require_arrays(
        *shapes,
        what=f"a model with weights of shapes {', '.join(map(str, shapes))}",
        instead="take fewer heads or smaller dimensions",
    )


def deviations_of(scheme: Scheme, scale: float, *, heads: int, rank: int, width: int) -> tuple[float, float]:
    r"""The standard deviations of values, and of keys and queries, for tokens of `width` numbers.

    The published script has had three rules (docs/differences.md). With the scale s, they are

    - "plain": s for all;
    - "per-head": s for values, $s/\sqrt{R E}$ for keys and queries, the size of one head's matrix;
    - "stacked": $s/\sqrt{H E^2}$ and $s/\sqrt{H R E}$, the sizes of the matrices of all heads together,

    with H heads of rank R and the width E.
    """
    checks.one_of("scheme", scheme, get_args(Scheme))
    scale = check_scale(scale)
    if scheme == "plain":
        return scale, scale
    if scheme == "per-head":
        return scale, scale / (rank * width) ** 0.5
    return scale / (heads * width * width) ** 0.5, scale / (heads * rank * width) ** 0.5


def check_scale(scale: float) -> float:
    """The scale of initial weights, if it is a number from 0 on."""
    return checks.number("scale of the initial weights", scale, least=0.0)


def clear(weight: Array, where: tuple, label_blocks: LabelBlocks) -> Array:
    """The weight with its label block at zero, unless that is to be random."""
    checks.one_of("label_blocks", label_blocks, get_args(LabelBlocks))
    if label_blocks == "random":
        return weight
    if isinstance(weight, Tracer):
        return weight.at[where].set(0.0)
    kept = np.array(weight)
    kept[where] = 0.0
    return jax.device_put(kept)


def head_scales(scale, heads: int) -> Float[np.ndarray, " head"]:
    """One scale for all heads, or one for each."""
    scales = checks.numbers_in("scale", scale)
    if scales.ndim > 1 or (scales.ndim == 1 and scales.shape[0] != heads):
        raise InvalidInput(f"scale has shape {scales.shape}; give one number, or one for each of {heads} heads")
    return np.broadcast_to(scales, (heads,))


def scaled_to(weight: Float[Array, "head ..."], norms: Float[np.ndarray, " head"]) -> Float[np.ndarray, "head ..."]:
    """Each head's part of a weight, rescaled to the given Euclidean norm; a part that is zero stays zero."""
    axes = tuple(range(1, weight.ndim))
    current = np.sqrt(np.sum(np.asarray(weight) ** 2, axis=axes))
    factor = np.where(current > 0, norms / np.where(current > 0, current, 1.0), 0.0)
    return np.asarray(weight) * factor.reshape((-1,) + (1,) * len(axes))


ScoreScale = Literal["head", "token"]
"""Over the root of the width of a head, $1/\\sqrt{d_e}$ (Chen et al.), or of a token, $1/\\sqrt{d + d_y}$ (the
published simulation)."""


def score_scale_of(given: float | ScoreScale, *, embedding: int, width: int) -> float:
    """The factor, given as a number or by name."""
    if isinstance(given, str):
        checks.one_of("score_scale", given, get_args(ScoreScale))
        return (embedding if given == "head" else width) ** -0.5
    return checks.number("score_scale", given, least=0.0, above=True)
