"""Which heads have grown, and when."""

import numpy as np
import xarray as xr

from stepwell import _check
from stepwell._arguments import checked

from ._staircase import passage_time
from ._weights import weights_of


@checked
def winners(trajectory: xr.Dataset, *, least: float = 0.1) -> xr.Dataset:
    """Heads whose value weight has grown, and when each first passes half its final size.

    A head has grown if in the end $|v_i|$ is at least the fraction `least` of the largest there.

    **Arguments:**

    - `trajectory`: a run of separate or merged attention with one output, from `descend`, `online` or `flow`.
    - `least`: the fraction of the largest $|v_i|$ that a head must reach; above 0, up to 1.

    **Returns:** a data set over (run, head): `grown`; `final`, the last $|v_i|$; `half`, a point of `snapshot` or
    `time`, interpolated, nan for a head that has not grown; and `order`, 0 for the first head to grow, -1 for one that
    has not.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> run = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> heads = sw.probes.winners(run)
    >>> heads["order"].values[0].tolist(), heads["half"].values[0].round().tolist()
    ([0, 1], [8.0, 34.0])
    """
    least = _check.number("least", least, least=0.0, most=1.0, above=True)
    weights = weights_of(trajectory)
    size = np.abs(weights.for_theory()["values"])
    final = size[:, -1]
    grown = (final >= least * final.max(axis=1, keepdims=True)) & (final > 0)
    half, order = np.full(final.shape, np.nan), np.full(final.shape, -1)
    for run, head in zip(*np.nonzero(grown), strict=True):
        half[run, head] = passage_time(weights.points, -size[run, :, head], -float(final[run, head]) / 2)
    for run in range(len(half)):
        sequence = np.argsort(half[run], kind="stable")[: grown[run].sum()]
        order[run, sequence] = np.arange(sequence.size)
    dims = ("run", "head")
    made = xr.Dataset(
        {"grown": (dims, grown), "final": (dims, final), "half": (dims, half), "order": (dims, order)},
        {"run": weights.runs},
    )
    made["half"].attrs["units"] = trajectory[weights.axis].attrs.get("units", weights.axis)
    return made
