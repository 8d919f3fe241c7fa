"""The effective map along a run."""

import xarray as xr

from stepwell._arguments import checked
from stepwell.theory import linear

from ._weights import weights_of


@checked
def effective_map(trajectory: xr.Dataset) -> xr.DataArray:
    r"""The effective map $A$, with $\hat y = \beta^\top A x_q$, at every recorded point.

    $A = \sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate keys and queries, $\sum_i v_i U_i$ for merged ones. The label
    blocks are left out.

    **Arguments:**

    - `trajectory`: a run of separate or merged attention with one output, from `descend`, `online` or `flow`.

    **Returns:** the maps, over (run, snapshot or time, row, column).

    **Example:**

    One head learns one component, and shrinks it as the context of 31 pairs demands.

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=1, scale=0.1)
    >>> run = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> sw.probes.effective_map(run).values[0, -1].round(3).tolist()
    [[0.925, 0.0], [0.0, 0.0]]
    """
    weights = weights_of(trajectory)
    maps = linear.PREDICTORS[str(weights.kind.theory)].effective_map(weights.for_theory())
    return xr.DataArray(maps, weights.coordinates, ("run", weights.axis, "row", "column"), "effective_map")
