r"""Fig 11: in a run of Fig 4 with two pairs in a head, which head makes each drop.

A head's part of component d is $v_i\sum_r (k_{i,r}\cdot e_d)(q_{i,r}\cdot e_d)$; the head with the largest part in the
end made that drop. Keys of a head can be rotated into each other without a change of its map, so that the sizes of its
pairs are the singular values of its key matrix.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from stepwell.dynamics import Ensemble, descend, flow, rate_for
from stepwell.objectives import Population
from stepwell.papers._completed import completed

from ._low_rank_settings import DIM, LANES, STEP, STEPS, starts, task

RANK = 2


def shown_run(seed: int, configuration: dict[str, Any]) -> xr.Dataset:
    """Descent as published, with `loss` at all recorded steps and there `value` and `pair`, sizes of every head."""
    every = 20
    trajectory = completed(
        descend(
            starts(RANK, [seed])[0],
            Population(task()),
            rate=rate_for(STEP, 1),
            steps=STEPS,
            record=every,
            snapshots=STEPS // every + 1,
            progress=False,
            configuration=configuration,
        )
    )
    pairs = np.linalg.svd(trajectory["key"].values[0], compute_uv=False)
    return xr.Dataset(
        {
            "loss": ("step", trajectory["loss"].values[0]),
            "value": (("step", "head"), np.abs(trajectory["value"].values[0, :, :, 0, DIM])),
            "pair": (("step", "head", "pair"), pairs),
        },
        {"step": trajectory["step"].values},
        trajectory.attrs,
    )


def makers(seeds: Sequence[int]) -> Int[np.ndarray, "run component"]:
    """The head that makes each drop, of runs to the end by gradient flow."""
    models = starts(RANK, seeds)
    parts = [models[first : first + LANES] for first in range(0, len(models), LANES)]
    return np.concatenate([_some_makers(Ensemble.of(part)) for part in parts])


def _some_makers(models: Ensemble) -> Int[np.ndarray, "run component"]:
    trajectory = completed(flow(models, Population(task()), save=2, progress=False))
    value = trajectory["value"].values[:, -1, :, 0, DIM]
    key, query = trajectory["key"].values[:, -1, :, :, :DIM], trajectory["query"].values[:, -1]
    parts: Float[np.ndarray, "run head component"] = np.einsum("sh,shrd,shrd->shd", value, key, query)
    return np.argmax(parts, axis=1)


def used_before(makers: Int[np.ndarray, "run component"]) -> np.ndarray:
    """Whether the head of each drop but the first had made one before."""
    return np.array([[row[m] in row[:m] for m in range(1, row.size)] for row in makers])
