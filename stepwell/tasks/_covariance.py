"""Covariance matrices from their eigenvalues and eigenvectors."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._types import RandomKey

from ._generator import generator


def random_rotation(dim: int, *, key: RandomKey) -> Float[np.ndarray, "dim dim"]:
    """An orthogonal matrix drawn uniformly (Haar): QR of a Gaussian matrix, signs fixed by R's diagonal."""
    q, r = np.linalg.qr(generator(key).standard_normal((dim, dim)))
    return q * np.sign(np.diag(r))


def covariance(
    eigenvalues: Sequence[float] | Float[np.ndarray, " dim"],
    eigenvectors: Float[np.ndarray, "dim dim"] | None = None,
    *,
    key: RandomKey | None = None,
) -> Float[np.ndarray, "dim dim"]:
    r"""$\Lambda = \sum_d \lambda_d e_d e_d^\top$.

    `eigenvectors` has $e_d$ as column d. Without it they are random if a `key` is given, otherwise the axes.
    """
    lam = np.array([_check.number("eigenvalue", value, least=0.0) for value in eigenvalues])
    if lam.size == 0:
        raise InvalidInput("eigenvalues are empty; give one for each dimension, for instance .4 .3 .2 .1")
    if eigenvectors is None:
        vectors = np.eye(lam.size) if key is None else random_rotation(lam.size, key=key)
    else:
        vectors = np.asarray(eigenvectors, dtype=np.float64)
        if vectors.shape != (lam.size, lam.size):
            raise InvalidInput(
                f"eigenvectors have shape {vectors.shape}; {lam.size} eigenvalues need ({lam.size}, {lam.size})"
            )
        gap = float(np.abs(vectors.T @ vectors - np.eye(lam.size)).max())
        if gap > 1e-8:
            raise InvalidInput(f"eigenvectors are not orthonormal (off by {gap:.2g}); take the Q of numpy.linalg.qr")
    matrix = (vectors * lam) @ vectors.T
    return (matrix + matrix.T) / 2


def published_covariance(dim: int, *, white: bool = False, key: RandomKey) -> Float[np.ndarray, "dim dim"]:
    """The published script's, of trace 1: eigenvalues in proportion 1..dim and random eigenvectors, or I/dim."""
    dim = _check.whole("dim", dim)
    if white:
        return np.eye(dim) / dim
    spectrum = np.arange(dim, 0, -1.0)
    return covariance(spectrum / spectrum.sum(), key=key)


def square_root(matrix: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The symmetric square root of a covariance."""
    lam, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.clip(lam, 0.0, None))) @ vectors.T
