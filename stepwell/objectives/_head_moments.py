r"""Moments of any number of softmax heads whose scores are along one Gaussian, from a table of low rank."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float
from numpy.polynomial import chebyshev

_LEFT_OUT = 1e-9
"""What the grids of an integral leave out."""
_LOG_STEP = 0.5
"""In log t. The trapezoidal rule errs by about exp(-pi^2 / step), which is 3e-9."""
_NODES = 13
"""Chebyshev nodes for each unit of the largest sharpness."""
_RANK = 1e-12
"""Eigenvalues of the table that are left out, relative to the largest."""
_QUERIES = 40
"""Gauss-Legendre nodes for the norm of the query."""


class HeadMoments(NamedTuple):
    r"""Factors of $R(a, b) = \mathbb E\sum_l p_l q_l$ and $T(a, b) = \mathbb E\sum_l p_l z_l \sum_l q_l z_l$ for the
    weights $p = \mathrm{softmax}(a z)$ and $q = \mathrm{softmax}(b z)$ of L Gaussians z.

    Both are Gram matrices, $R(a, b) = \sum_k \varphi_k(a) \varphi_k(b)$ with some 25 terms, so that $\mu^\top R\mu$ is
    a sum of squares of sums over heads. Each $\varphi_k$ is a Chebyshev series on [-`largest`, `largest`].
    """

    largest: float
    overlap: Float[np.ndarray, "node rank"]
    second: Float[np.ndarray, "node other_rank"]

    def __call__(self, a: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape rank"], Float[Array, "*shape other"]]:
        waves = jnp.cos(jnp.arccos(a / self.largest)[..., None] * np.arange(len(self.overlap)))
        return waves @ self.overlap, waves @ self.second


@functools.lru_cache(maxsize=8)
def head_moments(context: int, reach: float) -> HeadMoments:
    r"""The table for one context length, for $a^2$ up to `reach`.

    $R = L\iint B_0 C^{L-1} dt\,du$ and $T = L\iint B_2 C^{L-1} + L(L-1)\iint A_a A_b C^{L-2}$ with
    $C = \mathbb E e^{-te^{az} - ue^{bz}}$, since $1/Z = \int e^{-tZ} dt$; each mean over z is a product of matrices.
    """
    largest, count = reach**0.5, int(np.ceil(_NODES * reach**0.5))
    points = -np.cos(np.pi * (np.arange(count) + 0.5) / count)
    far = -float(scipy.special.ndtri(_LEFT_OUT / context**2))
    low = float(scipy.special.ndtri((_LEFT_OUT / context) ** (1 / context)))
    half = int(np.ceil(far / min(0.3, _LOG_STEP / largest)))
    z = far / half * np.arange(-half, half + 1)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()

    # One grid of log t for each a, moved and made as long as the longest.
    sharpness = np.abs(largest * points)
    begin = np.log(_LEFT_OUT / context) - np.minimum(sharpness**2 / 2, sharpness * far)
    steps = int(np.max(np.ceil((np.log(-2 * np.log(_LEFT_OUT)) - sharpness * low - begin) / _LOG_STEP))) + 1
    log_t = begin[:, None] + _LOG_STEP * np.arange(steps)
    tilts = np.exp(np.minimum(log_t[:, :, None] + largest * points[:, None, None] * z, 700.0))
    kept, lost = np.exp(-tilts), -np.expm1(-tilts)
    taken = tilts * kept
    table = np.empty((2, count, count))
    for i in range((count + 1) // 2):
        j = slice(i, count - i)
        others, left_out, means = (part[j].reshape(-1, z.size).T for part in (kept, lost, taken))
        rows = taken[i] * density
        total = (lost[i] @ density)[:, None] + density @ left_out - (lost[i] * density) @ left_out
        rest = np.log1p(-np.minimum(total, 1 - 1e-16))
        alone = context * np.exp((context - 1) * rest)
        both = context * (context - 1) * np.exp((context - 2) * rest) if context > 1 else 0.0
        overlap = (rows @ means) * alone
        second = ((rows * z**2) @ means) * alone + ((rows * z) @ others) * ((kept[i] * density * z) @ means) * both
        found = _LOG_STEP**2 * np.stack([overlap, second]).reshape(2, steps, -1, steps).sum((1, 3))
        # The same for (b, a), (-a, -b) and (-b, -a).
        table[:, i, j] = table[:, j, i] = found
        table[:, -1 - i, j] = table[:, j, -1 - i] = found[:, ::-1]
    return HeadMoments(largest, *(_factors(part, points) for part in table))


def _factors(table: np.ndarray, points: np.ndarray) -> Float[np.ndarray, "node rank"]:
    values, vectors = np.linalg.eigh(table)
    kept = values > _RANK * values[-1]
    return chebyshev.chebfit(points, vectors[:, kept] * np.sqrt(values[kept]), len(points) - 1)


def query_norms(dim: int, largest: float) -> tuple[Float[np.ndarray, " query"], Float[np.ndarray, " query"]]:
    r"""Nodes up to `largest`, and weights, for $|q| \sim \chi_d$."""
    nodes, weights = np.polynomial.legendre.leggauss(_QUERIES)
    smallest = max(0.0, 2 * float(scipy.stats.chi.mean(dim)) - largest)
    norms = smallest + (largest - smallest) * (nodes + 1) / 2
    weights = weights * scipy.stats.chi.pdf(norms, dim)
    return norms, weights / weights.sum()
