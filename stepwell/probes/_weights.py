"""The weights of a recorded run of attention, whichever way it was trained."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell._errors import InvalidInput


class Weights(NamedTuple):
    """Weights over (run, point, …) with the points of the `axis`, which is `snapshot` or `time`.

    `value` is (…, head, output, token_dim). Separate attention has `key` (…, head, pair, token_dim) and `query`
    (…, head, pair, dim); merged attention has `key_query` (…, head, token_dim, dim). What there is not is None.
    """

    axis: str
    points: Float[np.ndarray, " point"]
    runs: np.ndarray
    dim: int
    value: np.ndarray
    key: np.ndarray | None
    query: np.ndarray | None
    key_query: np.ndarray | None

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        return {"run": self.runs, self.axis: self.points}

    def readout(self) -> Float[np.ndarray, "run point head"]:
        """$v_i$, the weight of each head on the label; for one output."""
        if self.value.shape[-2] != 1:
            raise InvalidInput(f"the model has {self.value.shape[-2]} outputs; this probe is for one")
        return self.value[..., 0, self.dim]


def weights_of(trajectory: xr.Dataset) -> Weights:
    """What `descend` and `flow` recorded of separate or merged attention."""
    axis = "snapshot" if "snapshot" in trajectory.dims else "time"
    lead = ("run", axis, "head")
    dims = {
        "value": (*lead, "output", "token_dim"),
        "key": (*lead, "pair", "token_dim"),
        "query": (*lead, "pair", "dim"),
        "key_query": (*lead, "token_dim", "dim"),
    }
    found = {
        name: trajectory[name].transpose(*order).values
        for name, order in dims.items()
        if name in trajectory and set(trajectory[name].dims) == set(order)
    }
    if "value" not in found or not ({"key", "query"} <= set(found) or "key_query" in found):
        raise InvalidInput("the trajectory has no weights of separate or merged attention over (run, snapshot or time)")
    return Weights(
        axis,
        trajectory[axis].values.astype(float),
        trajectory["run"].values,
        trajectory.sizes["dim"],
        found["value"],
        found.get("key"),
        found.get("query"),
        found.get("key_query"),
    )
