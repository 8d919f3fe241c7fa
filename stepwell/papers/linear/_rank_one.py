"""Rank-one heads under gradient flow from small random weights: what Fig 3, `in_context_pcr` and `beyond` share."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics import Ensemble, Record, RunFailed, flow
from stepwell.models import SeparateAttention
from stepwell.objectives import AbstractObjective
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
DIM = len(EIGENVALUES)
HEADS = 4


def initial_models(seeds: Sequence[int], init: float) -> list[SeparateAttention]:
    """The initial weights of each seed: the same draw at every size `init`."""
    return [SeparateAttention.random(dim=DIM, heads=HEADS, scale=init, key=jax.random.key(1 + seed)) for seed in seeds]


def schedules(task: InContextRegression, models: list[SeparateAttention]) -> theory.Schedules:
    """The schedule of drops of each run, from its initial weights alone."""
    made = theory.drop_schedule(task, Ensemble.of(models))
    for reason in filter(None, made.reasons):
        raise RunFailed(reason)
    return made


def run_flows(
    models: list[SeparateAttention],
    objective: AbstractObjective,
    times: Float[np.ndarray, " time"],
    *,
    seeds: Sequence[int],
    rtol: float,
    atol: float,
) -> xr.Dataset:
    """Gradient flow of all seeds as one program, saved at common times."""
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "progress": False}
    trajectory = flow(Ensemble.of(models), objective, until=times[-1], record=Record(points=times), **options)
    return trajectory.assign_coords(run=list(seeds))
