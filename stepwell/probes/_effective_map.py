"""The effective map along a run."""

import numpy as np
import xarray as xr

from ._weights import weights_of


def effective_map(trajectory: xr.Dataset) -> xr.DataArray:
    r"""$A$ with $\hat y = \beta^\top A x_q$ at every recorded point, over (run, snapshot or time, row, column).

    $A = \sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate keys and queries, $\sum_i v_i U_i$ for merged ones. The label
    blocks are left out. One output.
    """
    found = weights_of(trajectory)
    value, dim = found.readout(), found.dim
    if found.key_query is not None:
        maps = np.einsum("...h,...hij->...ij", value, found.key_query[..., :dim, :])
    else:
        assert found.key is not None and found.query is not None
        maps = np.einsum("...h,...hri,...hrj->...ij", value, found.key[..., :dim], found.query)
    return xr.DataArray(maps, found.coordinates, ("run", found.axis, "row", "column"), "effective_map")
