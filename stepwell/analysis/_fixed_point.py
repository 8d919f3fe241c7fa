"""How near a run is to a fixed point."""

import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell.models import AbstractModel
from stepwell.tasks import Batch
from stepwell.theory import LinearTask
from stepwell.theory import linear as theory

from ._effective_map import effective_map


@checked
def nearest_fixed_point(
    trajectory: xr.Dataset, task: LinearTask, model: AbstractModel | None = None, *, batch: Batch | None = None
) -> xr.Dataset:
    """The fixed point nearest to the effective map at every recorded point, by `theory.linear.nearest_fixed_point`.

    **Arguments:**

    - `trajectory`: a run of a model with one output, from `descend`, `online` or `flow`.
    - `task`: the regression that it was trained on: a task of `stepwell.tasks`, or a `theory.Regression`.
    - `model`: a model of the class and shape that was trained; by default the recorded separate or merged attention.
    - `batch`: sequences to measure its maps on, for a model that declares no effective map.

    **Returns:** a data set over (run, snapshot or time): `distance`, the root mean square by which the predictions
    differ on fresh sequences; `learned`, how many components the fixed point has; `loss`, its level; and over
    components too, from 1, `has`.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> record = sw.Record(points=4)
    >>> run = sw.dynamics.flow(model, sw.objectives.Population(task), until=60.0, record=record, progress=False)
    >>> nearest = sw.analysis.nearest_fixed_point(run, task)
    >>> nearest["learned"].values[0].tolist(), nearest["loss"].values[0].round(3).tolist()
    ([0, 1, 2, 2], [1.5, 0.575, 0.132, 0.132])
    """
    maps = effective_map(trajectory, model, batch=batch)
    lead = maps.dims[:2]
    points = [theory.nearest_fixed_point(task, each) for each in maps.values.reshape(-1, *maps.shape[2:])]
    sizes = maps.shape[:2]
    has = np.zeros((len(points), maps.shape[2]), dtype=bool)
    for row, nearest in zip(has, points, strict=True):
        row[list(nearest.point.learned)] = True
    return xr.Dataset(
        {
            "distance": (lead, np.array([nearest.distance for nearest in points]).reshape(sizes)),
            "learned": (lead, has.sum(axis=1).reshape(sizes)),
            "loss": (lead, np.array([nearest.point.loss for nearest in points]).reshape(sizes)),
            "has": ((*lead, "component"), has.reshape(*sizes, -1)),
        },
        {**{name: maps[name] for name in lead}, "component": np.arange(1, has.shape[1] + 1)},
    )
