"""Covariance matrices from their eigenvalues and eigenvectors."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays
from stepwell._util.spectrum import from_spectrum, spectrum_of
from stepwell._util.types import RandomKey

from ._random import generator, generators


@checked
def random_rotation(dim: int, *, key: RandomKey | Key[Array, " key"]) -> Float[np.ndarray, "*key dim dim"]:
    """Return an orthogonal matrix drawn uniformly (Haar): QR of a Gaussian matrix, signs fixed by R's diagonal.

    The determinant is +1 or -1, each with probability one half.

    **Arguments:**

    - `dim`: the number of rows and columns.
    - `key`: a JAX random key, or an array of them.

    **Returns:** the matrix; of an array of keys a matrix for each, the same as by itself.

    **Example:**

    >>> rotation = sw.tasks.random_rotation(3, key=jax.random.key(0))
    >>> np.allclose(rotation @ rotation.T, np.eye(3))
    True
    """
    dim = checks.whole("dim", dim)
    require_arrays((dim, dim), (dim, dim), what=f"a matrix of {dim} rows and columns", instead="take a smaller dim")
    if key.ndim == 1 and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        normals = np.stack([each.standard_normal((dim, dim)) for each in generators(key)])
    else:
        normals = generator(key).standard_normal((dim, dim))
    q, r = np.linalg.qr(normals)
    return q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]


@checked
def covariance(
    eigenvalues: Sequence[float] | Float[np.ndarray, " dim"],
    eigenvectors: Float[np.ndarray, "dim dim"] | None = None,
    *,
    key: RandomKey | None = None,
) -> Float[np.ndarray, "dim dim"]:
    r"""Return a covariance matrix from its eigenvalues, $\Lambda = \sum_d \lambda_d e_d e_d^\top$.

    **Arguments:**

    - `eigenvalues`: $\lambda_d$, each at least 0, in any order.
    - `eigenvectors`: an orthogonal matrix with $e_d$ as column d. By default they are random if a `key` is given, and
      otherwise the axes.
    - `key`: a JAX random key for random eigenvectors; not used if `eigenvectors` are given.

    **Returns:** the matrix $\Lambda$, exactly symmetric. It carries its eigenvalues and eigenvectors, which tasks and
    the theory use: those far below the largest are lost to rounding in the entries. What is computed from the matrix,
    such as a multiple of it, carries none.

    **Example:**

    >>> matrix = sw.tasks.covariance([0.6, 0.3, 0.1], key=jax.random.key(0))
    >>> np.linalg.eigvalsh(matrix).round(6).tolist()
    [0.1, 0.3, 0.6]
    """
    lam = np.array([checks.number("eigenvalue", value, least=0.0) for value in eigenvalues])
    if lam.size == 0:
        raise InvalidInput("eigenvalues are empty; give one for each dimension, for instance .4 .3 .2 .1")
    if eigenvectors is None:
        vectors = np.eye(lam.size) if key is None else random_rotation(lam.size, key=key)
    else:
        vectors = checks.numbers_in("eigenvectors", eigenvectors)
        if vectors.shape != (lam.size, lam.size):
            raise InvalidInput(
                f"eigenvectors have shape {vectors.shape}; {lam.size} eigenvalues need ({lam.size}, {lam.size})"
            )
        gap = float(np.abs(vectors.T @ vectors - np.eye(lam.size)).max())
        if gap > 1e-8:
            raise InvalidInput(f"eigenvectors are not orthonormal (off by {gap:.2g}); take the Q of numpy.linalg.qr")
    return from_spectrum(lam, vectors)


@checked
def published_covariance(dim: int, *, white: bool = False, key: RandomKey) -> Float[np.ndarray, "dim dim"]:
    """Return the covariance of the published script, of trace 1.

    Its eigenvalues are in proportion dim, …, 2, 1 and its eigenvectors random; the white covariance is I/dim.

    **Arguments:**

    - `dim`: the dimension of an input.
    - `white`: whether to return I/dim, as the script's `--white_cov` does.
    - `key`: a JAX random key for the eigenvectors; not used for a white covariance.

    **Returns:** the matrix.

    **Example:**

    >>> matrix = sw.tasks.published_covariance(4, key=jax.random.key(0))
    >>> np.linalg.eigvalsh(matrix).round(6).tolist()
    [0.1, 0.2, 0.3, 0.4]
    """
    dim = checks.whole("dim", dim)
    require_arrays((dim, dim), what=f"a covariance in dimension {dim}", instead="take a smaller dim")
    if white:
        return np.eye(dim) / dim
    spectrum = np.arange(dim, 0, -1.0)
    return covariance(spectrum / spectrum.sum(), key=key)


def square_root(matrix: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The symmetric square root of a covariance."""
    lam, vectors, _ = spectrum_of(matrix)
    return (vectors * np.sqrt(np.clip(lam, 0.0, None))) @ vectors.T
