"""Means over the query of what softmax does to it, in closed form and differentiable."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float
from numpy.polynomial import chebyshev

from stepwell.tasks import softmax_moments

_NODES = 2.4
"""Chebyshev nodes of a table for each unit of reach: its error is then about 1e-10, that of the moments themselves."""
_MODES = 4.8
"""Frequencies of the series for each unit of reach."""


class QueryMeans(eqx.Module):
    r"""$\mathbb E\, G(a^2)$ for $a^2 = \sum_j s_j n_j$, $n_j \sim \chi^2_{d_j}$, and two functions of the sharpness a:

    `concentration` R and `spread` $(T - R)/a^2 - 1$ (see `softmax_moments`), the rows of what is returned.

    Each G is a Fourier series on [0, `reach`], with a period of twice that so that it need not be periodic itself:
    $G(x) = \mathrm{Re} \sum_k c_k e^{i\theta_k x}$. The mean of an exponential is a product over blocks,
    $\prod_j (1 - 2i\theta_k s_j)^{-d_j/2}$, whatever their number.
    """

    frequencies: Float[Array, " mode"]
    cosines: Float[Array, "2 mode"]
    sines: Float[Array, "2 mode"]

    def __call__(self, scales: Float[Array, "... block"], dims: Float[Array, "... block"]) -> Float[Array, "2 ..."]:
        doubled = 2 * self.frequencies * scales[..., None]
        size = jnp.exp(-jnp.sum(dims[..., None] / 4 * jnp.log1p(doubled**2), axis=-2))
        phase = jnp.sum(dims[..., None] / 2 * jnp.arctan(doubled), axis=-2)
        waves = size * jnp.cos(phase), size * jnp.sin(phase)
        return jnp.einsum("gm,...m->g...", self.cosines, waves[0]) + jnp.einsum("gm,...m->g...", self.sines, waves[1])


@functools.lru_cache(maxsize=32)
def query_means(context: int, reach: float) -> QueryMeans:
    """The means for one context length, good as long as $a^2$ exceeds `reach` with a probability of next to nothing."""
    nodes, modes = int(np.ceil(_NODES * reach)), int(np.ceil(_MODES * reach))
    x = _chebyshev_points(nodes)
    table = chebyshev.chebfit(x, _moments((x + 1) * reach / 2, context), nodes - 1)
    dense = _chebyshev_points(4 * modes)
    frequencies = np.pi / reach * np.arange(modes)
    angles = np.outer((dense + 1) * reach / 2, frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    # More waves than the interval can tell apart: least squares takes the smallest coefficients.
    solution = scipy.linalg.lstsq(waves, chebyshev.chebval(dense, table).T, cond=1e-13, lapack_driver="gelsy")
    assert solution is not None
    cosines, sines = np.split(solution[0].T, 2, axis=1)
    return QueryMeans(*(jnp.asarray(part) for part in (frequencies, cosines, sines)))


def _moments(squares: Float[np.ndarray, " point"], context: int) -> Float[np.ndarray, "point 2"]:
    concentration, second = softmax_moments(np.sqrt(squares), context)
    return np.stack([concentration, (second - concentration) / squares - 1], axis=1)


def _chebyshev_points(count: int) -> Float[np.ndarray, " point"]:
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)
