"""Covariance matrices that carry the eigenvalues and eigenvectors they were made of.

A matrix in float64 determines its eigenvalues up to 2·10⁻¹⁶ of the largest. What is smaller by twelve decades has lost
all but four digits as soon as the matrix is formed, and no eigensolver brings them back.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float


class Spectrum(NamedTuple):
    """Eigenvalues, and the eigenvectors as columns."""

    values: Float[np.ndarray, " dim"]
    vectors: Float[np.ndarray, "dim dim"]
    exact: bool
    """Whether small eigenvalues have all their digits; otherwise they are off by rounding errors of the largest."""


class Covariance(np.ndarray):
    """A symmetric matrix with the spectrum it was made of. What is computed from it is a plain array."""

    made_of: Spectrum | None
    entries: Float[np.ndarray, "dim dim"]
    """Those that it was made with."""

    def __array_finalize__(self, parent: Any) -> None:
        self.made_of = None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array)[()] if return_scalar else np.asarray(array)

    def __deepcopy__(self, memo: Any) -> Any:
        made_of = self.unchanged()
        return np.array(self) if made_of is None else _carrying(self.entries, *made_of[:2])

    def __reduce__(self) -> Any:
        made_of = self.unchanged()
        return np.asarray(self).__reduce__() if made_of is None else (_carrying, (self.entries, *made_of[:2]))

    def unchanged(self) -> Spectrum | None:
        """The spectrum it was made of, unless an entry was changed since."""
        return self.made_of if self.made_of is not None and np.array_equal(self, self.entries) else None


def from_spectrum(values: Float[np.ndarray, " dim"], vectors: Float[np.ndarray, "dim dim"]) -> Covariance:
    """The matrix with these eigenvalues and orthonormal eigenvectors, exactly symmetric."""
    return _carrying(symmetric_part((vectors * values) @ vectors.T), values, vectors)


def _carrying(
    entries: Float[np.ndarray, "dim dim"], values: Float[np.ndarray, " dim"], vectors: Float[np.ndarray, "dim dim"]
) -> Covariance:
    matrix = entries.copy().view(Covariance)
    matrix.made_of, matrix.entries = Spectrum(values, vectors, exact=True), entries
    return matrix


def spectrum_of(matrix: Float[np.ndarray, "dim dim"]) -> Spectrum:
    """The spectrum that a matrix carries, if it was not changed since; else what can be read off its entries."""
    made_of = matrix.unchanged() if isinstance(matrix, Covariance) else None
    if made_of is not None:
        return made_of
    matrix = np.asarray(matrix)
    diagonal = np.diagonal(matrix)
    if np.count_nonzero(matrix) == np.count_nonzero(diagonal):
        return Spectrum(diagonal.copy(), np.eye(len(matrix)), exact=True)
    return Spectrum(*np.linalg.eigh(matrix), exact=False)


def symmetric_part(matrix: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """Half the sum of a matrix and its transpose; this way it does not overflow."""
    return matrix + (matrix.T - matrix) / 2
