"""How near a run is to a fixed point."""

import numpy as np
import xarray as xr

from stepwell.theory import RegressionTask
from stepwell.theory import linear as theory

from ._effective_map import effective_map


def nearest_fixed_point(trajectory: xr.Dataset, task: RegressionTask) -> xr.Dataset:
    r"""The fixed point nearest to the effective map at every recorded point, by `theory.linear.nearest_fixed_point`.

    Over (run, snapshot or time): `distance`, the root mean square by which the predictions differ on fresh sequences;
    `learned`, how many components the fixed point has; `loss`, its level; and over components too, `has`.
    """
    maps = effective_map(trajectory)
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
        {name: maps[name] for name in lead},
    )
