"""The effective map along a run."""

import functools

import xarray as xr
from jaxtyping import Array

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel, is_cubic, measured_map, require_linear
from stepwell.tasks import Batch

from ._recorded import recorded


@checked
def effective_map(
    trajectory: xr.Dataset, model: AbstractModel | None = None, *, batch: Batch | None = None
) -> xr.DataArray:
    r"""The effective map $A$, with $\hat y = \beta^\top A x_q$, at every recorded point.

    It is the model's own `effective_map()`: $A = \sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate keys and queries,
    $\sum_i v_i U_i$ for merged ones, without the label blocks. Of a model that declares none, but is linear in the
    query, it is measured on sequences (`stepwell.models.measured_map`).

    **Arguments:**

    - `trajectory`: a run of a model with one output, from `descend`, `online` or `flow`.
    - `model`: a model of the class and shape that was trained; by default one of the class that the trajectory names,
      which is to be imported before if it is your own.
    - `batch`: sequences to measure the maps on, for a model that declares none.

    **Returns:** the maps, over (run, snapshot or time, row, column). Measured ones have a coordinate `unexplained`, the
    fraction of the answers, in mean square, that the map leaves.

    **Example:**

    One head learns one component, and shrinks it as the context of 31 pairs demands.

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=1, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> sw.analysis.effective_map(trajectory).values[0, -1].round(3).tolist()
    [[0.925, 0.0], [0.0, 0.0]]
    """
    along = recorded(trajectory, model)
    template, axis = along.template, along.axis
    if is_cubic(template):
        maps, unexplained = along.over(_declared), None
    elif batch is None:
        raise InvalidInput(
            f"{type(template).__name__} declares no effective map; give sequences to measure it on, such as "
            "batch=task.sample(1000, key=…)"
        )
    else:
        measured = along.over(functools.partial(measured_map, batch=batch))
        require_linear(template, measured)
        maps, unexplained = measured.map, measured.unexplained
    if maps.shape[2] != 1:
        raise InvalidInput(f"the model has {maps.shape[2]} outputs; this probe is for models with one output")
    made = xr.DataArray(maps[:, :, 0, 0], along.coordinates, ("run", axis, "row", "column"), "effective_map")
    return made if unexplained is None else made.assign_coords(unexplained=(("run", axis), unexplained))


def _declared(model: AbstractModel) -> Array:
    return model.effective_map()
