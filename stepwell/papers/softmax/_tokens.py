"""The loss of attention over drawn contexts, with the task vector and the noise integrated out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Weights = Callable[[Float[np.ndarray, "sequence token"]], Float[np.ndarray, "sequence token"]]
"""What each token's label is multiplied by, from the scores of the tokens."""

_AT_ONCE = 2**21
"""Numbers drawn at a time."""
_FEW = 200
"""The scatter of contexts is from a quarter as many others, and at least from so many."""


class Sampled(NamedTuple):
    """A mean over contexts and its standard error, from contexts of its own."""

    mean: float
    error: float


def softmax(scores: Float[np.ndarray, "*any token"]) -> Float[np.ndarray, "*any token"]:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def sampled_loss(
    scores: Float[np.ndarray, "dim dim"],
    weights: Weights,
    context: int,
    sequences: int,
    *,
    noise: float,
    rng: np.random.Generator,
) -> Sampled:
    r"""$\mathbb E[\,\|q - X^\top P\|^2 + \sigma^2\|P\|^2]/d$ over contexts X and queries q, all standard normal.

    P is `weights` of the scores $x_l^\top Wq$, W = `scores`. It is the loss over the signal of
    $\hat y = \sum_lP_ly_l$, $y_l = g\cdot x_l + \varepsilon_l$, in the mean over $g\sim\mathcal N(0, I)$ and noise.
    The standard error is by the scatter of other contexts.
    """
    drawn = _losses(scores, weights, context, sequences, noise, rng)
    others = _losses(scores, weights, context, max(_FEW, sequences // 4), noise, rng.spawn(1)[0])
    return Sampled(float(drawn.mean()), float(others.std(ddof=1) / sequences**0.5))


def _losses(
    scores: np.ndarray, weights: Weights, context: int, sequences: int, noise: float, rng: np.random.Generator
) -> Float[np.ndarray, " sequence"]:
    """Of each drawn context."""
    dim, values, left = scores.shape[0], [], sequences
    while left > 0:
        count = min(left, max(1, _AT_ONCE // (context * dim)))
        x, q = rng.standard_normal((count, context, dim)), rng.standard_normal((count, dim))
        p = weights(np.matmul(x, (q @ scores.T)[..., None])[..., 0])
        missed = q - np.matmul(p[:, None], x)[:, 0]
        values.append((np.sum(missed**2, axis=1) + noise * np.sum(p**2, axis=1)) / dim)
        left -= count
    return np.concatenate(values)
