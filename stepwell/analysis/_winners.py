"""Which heads have grown, and when."""

import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel, is_cubic

from ._recorded import recorded
from ._staircase import passage_time

_ROUNDING = 1e-9
"""By which the sum of the heads' maps may differ from the map of the model, relative to it."""


@checked
def winners(trajectory: xr.Dataset, model: AbstractModel | None = None, *, least: float = 1e-3) -> xr.Dataset:
    r"""Heads whose map has grown, and when each first passes half its final size.

    The size of a head is the Frobenius norm of its part of the effective map, $\|A_h\|$; for separate heads of rank
    one $|v_h| |k_h| |q_h|$. A head has grown if in the end that is at least the fraction `least` of the largest there.

    **Arguments:**

    - `trajectory`: a run of attention, or of another model that declares `head_maps()`, from `descend`, `online` or
      `flow`.
    - `model`: a model of the class and shape that was trained; by default one of the class that the trajectory names.
    - `least`: the fraction of the largest size that a head must reach; above 0, up to 1.

    **Returns:** a data set over (run, head): `grown`; `final`, the last $\|A_h\|$; `half`, a point of `snapshot` or
    `time`, interpolated, nan for a head that has not grown; and `order`, 0 for the first head to grow, -1 for one that
    has not.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> heads = sw.analysis.winners(trajectory)
    >>> heads["order"].values[0].tolist(), heads["half"].values[0].round().tolist()
    ([0, 1], [9.0, 37.0])
    """
    least = checks.number("least", least, least=0.0, most=1.0, above=True)
    along = recorded(trajectory, model)
    if not is_cubic(along.template):
        name = type(along.template).__name__
        raise InvalidInput(
            f"{name} declares no form, so that nothing is known of its heads; if its head_maps() and their sum, its "
            "effective_map(), give its answers, write declared_form = 'linear' in the class"
        )
    maps, whole = along.over(_maps)
    gap = np.abs(maps.sum(axis=2) - whole).max(initial=0.0)
    if not gap <= _ROUNDING * np.abs(whole).max(initial=0.0):
        raise InvalidInput(
            f"head_maps() of {type(along.template).__name__} do not add up to its effective_map(): they differ by "
            f"{gap:.2g}; correct either"
        )
    size, points = np.sqrt(np.sum(maps**2, axis=(3, 4, 5, 6))), along.coordinates[along.axis]
    final = size[:, -1]
    grown = (final >= least * final.max(axis=1, keepdims=True)) & (final > 0)
    half, order = np.full(final.shape, np.nan), np.full(final.shape, -1)
    for run, head in zip(*np.nonzero(grown), strict=True):
        half[run, head] = passage_time(points, -size[run, :, head], -float(final[run, head]) / 2)
    for run in range(len(half)):
        sequence = np.argsort(half[run], kind="stable")[: grown[run].sum()]
        order[run, sequence] = np.arange(sequence.size)
    dims = ("run", "head")
    made = xr.Dataset(
        {"grown": (dims, grown), "final": (dims, final), "half": (dims, half), "order": (dims, order)},
        {"run": along.coordinates["run"]},
    )
    made["half"].attrs["units"] = trajectory[along.axis].attrs.get("units", along.axis)
    return made


def _maps(model: AbstractModel) -> tuple[Array, Array]:
    return model.head_maps(), model.effective_map()
