r"""Fig 11: in a run of Fig 4 with two pairs in a head, which head makes each drop.

A head's part of component d is $v_i\sum_r (k_{i,r}\cdot e_d)(q_{i,r}\cdot e_d)$; the head with the largest part in the
end made that drop. Keys of a head can be rotated into each other without a change of its map, so that the sizes of its
pairs are the singular values of its key matrix.
"""

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from stepwell.dynamics import Ensemble, Record, descend, flow, rate_for
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression

from ._low_rank_settings import DIM, LANES, Settings

RANK = 2


def shown_run(settings: Settings) -> xr.Dataset:
    """Descent of the first seed as published, with `loss`, `value` and `pair`, sizes of every head."""
    every = 20
    trajectory = descend(
        settings.initial_models(RANK, settings.every_seed[:1])[0],
        Population(settings.task),
        rate=rate_for(settings.step, 1),
        steps=settings.steps,
        record=Record(every=every, snapshots=settings.steps // every + 1),
        progress=False,
    )
    pairs = np.linalg.svd(trajectory["key"].values[0], compute_uv=False)
    return xr.Dataset(
        {
            "loss": ("step", trajectory["loss"].values[0]),
            "value": (("snapshot", "head"), np.abs(trajectory["value"].values[0, :, :, 0, DIM])),
            "pair": (("snapshot", "head", "pair"), pairs),
        },
        {name: trajectory[name].values for name in ("step", "snapshot")},
        trajectory.attrs,
    )


def makers(settings: Settings) -> Int[np.ndarray, "run component"]:
    """The head that makes each drop, of runs to the end by gradient flow."""
    models = settings.initial_models(RANK, settings.every_seed)
    parts = [models[first : first + LANES] for first in range(0, len(models), LANES)]
    return np.concatenate([_some_makers(Ensemble.of(part), settings.task) for part in parts])


def _some_makers(models: Ensemble, task: InContextRegression) -> Int[np.ndarray, "run component"]:
    trajectory = flow(models, Population(task), record=Record(points=2), progress=False)
    value = trajectory["value"].values[:, -1, :, 0, DIM]
    key, query = trajectory["key"].values[:, -1, :, :, :DIM], trajectory["query"].values[:, -1]
    parts: Float[np.ndarray, "run head component"] = np.einsum("sh,shrd,shrd->shd", value, key, query)
    return np.argmax(parts, axis=1)


def used_before(makers: Int[np.ndarray, "run component"]) -> np.ndarray:
    """Whether the head of each drop but the first had made one before."""
    return np.array([[row[m] in row[:m] for m in range(1, row.size)] for row in makers])
