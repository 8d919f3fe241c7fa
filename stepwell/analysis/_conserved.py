"""What the flow conserves, along a run."""

import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from ._recorded import weight_axis, weights_of

_CONSERVING = ({"value", "key", "query"}, {"value", "key_query"})
"""Weights, of separate and of merged attention, of which it is known what the flow conserves."""


@checked
def conserved(trajectory: xr.Dataset, *, control: bool = False) -> xr.Dataset:
    r"""Return what gradient flow of linear attention conserves in each head, at every recorded point.

    Separate: `value_key`, $\|v_i\|^2 - \sum_r\|k_{i,r}\|^2$, and the matrix `key_query`, $K_iK_i^\top - Q_iQ_i^\top$,
    over (pair, other_pair). Merged: `value_key_query`, $\|v_i\|^2 - \|U_i\|_F^2$. Label blocks and several outputs are
    counted in; they hold for any data. Softmax conserves `key_query` only.

    **Arguments:**

    - `trajectory`: a run of separate or merged attention, from `descend`, `online` or `flow`.
    - `control`: whether to take sums instead, which nothing conserves: they show how far the weights moved.

    **Returns:** a data set with these quantities over (run, snapshot or time, head), and for `key_query` the two pairs.

    **Example:** the difference stays at its initial value, $0.1^2 - (0.1^2 + 0.1^2)$.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention([[[0.0, 0.0, 0.1]]], [[[0.1, 0.1, 0.0]]], [[[0.1, 0.1]]])
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), until=100.0, progress=False)
    >>> sw.analysis.conserved(trajectory)["value_key"].values[0, [0, -1], 0].round(4).tolist()
    [-0.01, -0.01]
    """
    weights = weights_of(trajectory)
    if not any(names <= set(weights.by_name) for names in _CONSERVING):
        raise InvalidInput(
            f"what the flow of {weights.model.__name__} conserves is not known; this is for runs with the weights "
            "value, key and query, or value and key_query"
        )
    dims = ("run", weights.axis, "head")
    sign = 1.0 if control else -1.0
    power = np.sum(weights.by_name["value"] ** 2, axis=(-2, -1))
    if "key_query" in weights.by_name:
        made = {"value_key_query": (dims, power + sign * np.sum(weights.by_name["key_query"] ** 2, axis=(-2, -1)))}
    else:
        keys, queries = (w @ np.swapaxes(w, -1, -2) for w in (weights.by_name["key"], weights.by_name["query"]))
        made = {
            "value_key": (dims, power + sign * np.trace(keys, axis1=-2, axis2=-1)),
            "key_query": ((*dims, "pair", "other_pair"), keys + sign * queries),
        }
    return xr.Dataset(made, weights.coordinates)


@checked
def conserved_drift(trajectory: xr.Dataset, *, control: bool = False) -> xr.Dataset:
    """Return by how much each quantity of `conserved` differs from its first value: the largest over heads and pairs.

    The flow has no drift beyond its solver's error; descent drifts to first order in its rate.

    **Arguments:**

    - `trajectory`: a run of separate or merged attention, from `descend`, `online` or `flow`.
    - `control`: whether to take sums instead of differences, as in `conserved`.

    **Returns:** a data set with the absolute differences over (run, snapshot or time).

    **Example:** the weights grow to order one, and the difference of their squares hardly changes.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention([[[0.0, 0.0, 0.1]]], [[[0.1, 0.1, 0.0]]], [[[0.1, 0.1]]])
    >>> trajectory = sw.dynamics.descend(model, sw.objectives.Population(task), rate=0.01, steps=2000, progress=False)
    >>> drifts = [sw.analysis.conserved_drift(trajectory, control=control)["value_key"] for control in (False, True)]
    >>> [round(float(drift.max()), 2) for drift in drifts]
    [0.0, 1.88]
    """
    quantities = conserved(trajectory, control=control)
    axis = weight_axis(quantities)
    change = abs(quantities - quantities.isel({axis: 0}, drop=True))
    return change.max([dim for dim in change.dims if dim not in ("run", axis)])
