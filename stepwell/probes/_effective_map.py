"""The effective map along a run."""

import xarray as xr

from stepwell.theory import linear

from ._weights import weights_of


def effective_map(trajectory: xr.Dataset) -> xr.DataArray:
    r"""$A$ with $\hat y = \beta^\top A x_q$ at every recorded point, over (run, snapshot or time, row, column).

    $A = \sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate keys and queries, $\sum_i v_i U_i$ for merged ones. The label
    blocks are left out. One output.
    """
    weights = weights_of(trajectory)
    maps = linear.PREDICTORS[str(weights.kind.theory)].effective_map(weights.for_theory())
    return xr.DataArray(maps, weights.coordinates, ("run", weights.axis, "row", "column"), "effective_map")
