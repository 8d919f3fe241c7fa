"""Where keys and queries point."""

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from ._weights import weights_of


@checked
def alignment(trajectory: xr.Dataset, eigenvectors: Float[np.ndarray, "dim component"]) -> xr.Dataset:
    """The squared cosine of every key and query with every eigenvector, at every recorded point.

    **Arguments:**

    - `trajectory`: a run of separate attention, from `descend`, `online` or `flow`.
    - `eigenvectors`: orthonormal vectors, one a column: shape (dim, component).

    **Returns:** a data set with `key` and `query` over (run, snapshot or time, head, pair, component). With all
    eigenvectors they add up to one over the components. A vector of zeros has nan. Label entries of keys are left out.

    **Example:**

    A head starts between the two eigenvectors, and its key turns to the first.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> value, key = jnp.array([[[0.0, 0.0, 0.1]]]), jnp.array([[[0.1, 0.1, 0.0]]])
    >>> model = sw.models.SeparateAttention(value, key, query=jnp.array([[[0.1, 0.1]]]))
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), until=100.0, progress=False)
    >>> sw.analysis.alignment(trajectory, np.eye(2))["key"].values[0, [0, -1], 0, 0].round(3).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    weights = weights_of(trajectory)
    vectors = weights.model.theory_weights(weights.by_name)
    if "keys" not in vectors:
        raise InvalidInput(
            f"{weights.theory} attention has no keys and queries of its own; take its effective_map instead"
        )
    gap = float(np.abs(eigenvectors.T @ eigenvectors - np.eye(eigenvectors.shape[1])).max())
    dim = vectors["keys"].shape[-1]
    if eigenvectors.shape[0] != dim or gap > 1e-8:
        raise InvalidInput(f"eigenvectors must be orthonormal columns of length {dim}; take numpy.linalg.eigh's")
    dims = ("run", weights.axis, "head", "pair", "component")
    cosines = {
        "key": _squared_cosines(vectors["keys"], eigenvectors),
        "query": _squared_cosines(vectors["queries"], eigenvectors),
    }
    coordinates = {**weights.coordinates, "component": np.arange(1, eigenvectors.shape[1] + 1)}
    return xr.Dataset({name: (dims, values) for name, values in cosines.items()}, coordinates)


def _squared_cosines(vectors: np.ndarray, directions: np.ndarray) -> np.ndarray:
    # Scaled first: the squares of tiny weights would underflow.
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        scaled = vectors / largest
        return (scaled @ directions) ** 2 / np.sum(scaled**2, axis=-1, keepdims=True)
