"""The effective map along a run, and how near it is to a fixed point."""

import functools

import numpy as np
import xarray as xr

from stepwell import models
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel, form_of, measured_map, require_linear
from stepwell.tasks import Batch
from stepwell.theory import LinearTask
from stepwell.theory import linear as theory

from ._recorded import recorded


@checked
def effective_map(
    trajectory: xr.Dataset, model: AbstractModel | None = None, *, batch: Batch | None = None
) -> xr.DataArray:
    r"""Return the effective map $A$, with $\hat y = \beta^\top A x_q$, at every recorded point.

    It is the model's own `effective_map()`: $A = \sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate keys and queries,
    $\sum_i v_i U_i$ for merged ones, without the label blocks. Of a model that declares none, but is linear in the
    query, it is measured on sequences (`stepwell.models.measured_map`).

    **Arguments:**

    - `trajectory`: a run of a model with one output, from `descend`, `online` or `flow`.
    - `model`: a model of the class and shape that was trained; by default one of the class that the trajectory names,
      which is to be imported before if it is your own.
    - `batch`: sequences to measure the maps on, for a model that declares none.

    **Returns:** the maps, over (run, snapshot or time, row, column). Measured ones have a coordinate `unexplained`, the
    fraction of the predictions, in mean square, that the map leaves.

    **Example:** one head learns one component, and shrinks it as the context of 31 pairs demands.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=1, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> sw.analysis.effective_map(trajectory).values[0, -1].round(3).tolist()
    [[0.925, 0.0], [0.0, 0.0]]
    """
    along = recorded(trajectory, model)
    template, axis = along.template, along.axis
    if form_of(template) is not None:
        maps, unexplained = along.over(models.effective_map), None
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


@checked
def nearest_fixed_point(
    trajectory: xr.Dataset, task: LinearTask, model: AbstractModel | None = None, *, batch: Batch | None = None
) -> xr.Dataset:
    """Return the fixed point nearest to the effective map at every recorded point.

    It is that of `theory.linear.nearest_fixed_point`.

    **Arguments:**

    - `trajectory`: a run of a model with one output, from `descend`, `online` or `flow`.
    - `task`: the regression that it was trained on: a task of `stepwell.tasks`, or a `theory.Regression`.
    - `model`: a model of the class and shape that was trained; by default the recorded separate or merged attention.
    - `batch`: sequences to measure its maps on, for a model that declares no effective map.

    **Returns:** a data set over (run, snapshot or time): `distance`, the root mean square by which the predictions
    differ on fresh sequences; `learned`, how many components the fixed point has; `loss`, its level; and over
    components too, from 1, `has`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=2, scale=0.1)
    >>> record = sw.Record(points=4)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), until=60.0, record=record, progress=False)
    >>> nearest = sw.analysis.nearest_fixed_point(trajectory, task)
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
