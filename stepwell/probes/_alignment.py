"""Where keys and queries point."""

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell._errors import InvalidInput

from ._weights import weights_of


def alignment(trajectory: xr.Dataset, eigenvectors: Float[np.ndarray, "dim component"]) -> xr.Dataset:
    r"""$\cos^2$ of every key and query with every eigenvector, at every recorded point.

    `eigenvectors` are orthonormal, one a column. The result has `key` and `query` over (run, snapshot or time, head,
    pair, component); with all eigenvectors they add up to one over the components. A vector of zeros has nan. Label
    entries of keys are left out.
    """
    weights = weights_of(trajectory)
    if not {"key", "query"} <= set(weights.by_name):
        raise InvalidInput(
            f"{weights.kind.description} attention has no keys and queries of its own; take its effective_map instead"
        )
    gap = float(np.abs(eigenvectors.T @ eigenvectors - np.eye(eigenvectors.shape[1])).max())
    if eigenvectors.shape[0] != weights.dim or gap > 1e-8:
        raise InvalidInput(
            f"eigenvectors must be orthonormal columns of length {weights.dim}; take numpy.linalg.eigh's"
        )
    dims = ("run", weights.axis, "head", "pair", "component")
    cosines = {
        "key": _squared_cosines(weights.by_name["key"][..., : weights.dim], eigenvectors),
        "query": _squared_cosines(weights.by_name["query"], eigenvectors),
    }
    return xr.Dataset({name: (dims, values) for name, values in cosines.items()}, weights.coordinates)


def _squared_cosines(vectors: np.ndarray, directions: np.ndarray) -> np.ndarray:
    # Scaled first: the squares of tiny weights would underflow.
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        scaled = vectors / largest
        return (scaled @ directions) ** 2 / np.sum(scaled**2, axis=-1, keepdims=True)
