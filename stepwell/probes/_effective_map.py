"""The effective map along a run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell._arguments import checked
from stepwell._errors import InvalidInput
from stepwell.models import AbstractModel, MeasuredMap, class_of, is_cubic, measured_map, require_linear
from stepwell.tasks import Batch
from stepwell.trajectory import model_at

from ._weights import weights_of

_TOGETHER = 64
"""Recorded points whose maps are computed at a time."""


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
    - `model`: a model of the class and shape that was trained; by default that of the separate or merged attention
      whose weights are recorded.
    - `batch`: sequences to measure the maps on, for a model that declares none.

    **Returns:** the maps, over (run, snapshot or time, row, column). Measured ones have a coordinate `unexplained`, the
    fraction of the answers, in mean square, that the map leaves.

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
    template = _recorded_attention(trajectory) if model is None else model_at(trajectory, model)
    axis = "snapshot" if "snapshot" in trajectory.dims else "time"
    orders = {name: ("run", axis, *dims) for name, dims in template.weight_dims.items()}
    weights = {name: trajectory[name].transpose(*order).values for name, order in orders.items()}
    coordinates = {"run": trajectory["run"].values, axis: trajectory[axis].values.astype(float)}
    lead = (coordinates["run"].size, coordinates[axis].size)
    flat = {name: jax.device_put(each.reshape(-1, *each.shape[2:])) for name, each in weights.items()}
    if is_cubic(template):
        maps, unexplained = _declared(template, flat), None
    elif batch is None:
        raise InvalidInput(
            f"{type(template).__name__} declares no effective map; give sequences to measure it on, such as "
            "batch=task.sample(1000, key=…)"
        )
    else:
        measured = _measured(template, flat, batch)
        require_linear(template, measured)
        maps, unexplained = measured.map, np.asarray(measured.unexplained).reshape(lead)
    if maps.shape[1] != 1:
        raise InvalidInput(f"the model has {maps.shape[1]} outputs; this probe is for models with one output")
    values = np.asarray(maps)[:, 0, 0].reshape(*lead, *maps.shape[-2:])
    made = xr.DataArray(values, coordinates, ("run", axis, "row", "column"), "effective_map")
    return made if unexplained is None else made.assign_coords(unexplained=(("run", axis), unexplained))


def _recorded_attention(trajectory: xr.Dataset) -> AbstractModel:
    """A model like the attention whose weights are in the trajectory, at its first point."""
    weights = weights_of(trajectory)
    return class_of(weights.kind)(**{name: jnp.asarray(array[0, 0]) for name, array in weights.by_name.items()})


@eqx.filter_jit
def _declared(template: AbstractModel, weights: dict[str, Array]) -> Array:
    return jax.lax.map(lambda each: template.with_weights(each).effective_map(), weights, batch_size=_TOGETHER)


@eqx.filter_jit
def _measured(template: AbstractModel, weights: dict[str, Array], batch: Batch) -> MeasuredMap:
    return jax.lax.map(lambda each: measured_map(template.with_weights(each), batch), weights)
