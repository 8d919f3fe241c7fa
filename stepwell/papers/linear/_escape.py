"""How long a run waits before its loss falls: shared by Fig 6 and the escape-time scalings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import passage_time
from stepwell.dynamics import Ensemble, Record, flow
from stepwell.models import AbstractAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression

POINTS = 2000
"""Save times of a run, evenly over time and over its logarithm by halves."""


def flow_losses(
    models: Sequence[AbstractAttention],
    task: InContextRegression,
    until: float,
    *,
    rtol: float = 1e-7,
    atol: float | None = None,
    extra_times: Float[np.ndarray, " more"] | None = None,
) -> xr.Dataset:
    """Gradient flow on infinitely many sequences from each model: `loss` over run and `time`, `POINTS` of them.

    `extra_times`: times to save besides, for a finer resolution where a drop is expected.
    """
    even = np.linspace(0.0, until, POINTS // 2, endpoint=False)
    times = np.sort(np.concatenate([even, np.geomspace(1e-5 * until, until, POINTS // 2)]))
    if extra_times is not None:
        times = np.unique(np.concatenate([times, extra_times]))
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "progress": False}
    return flow(Ensemble.of(models), Population(task), until=until, record=Record(points=times), **options)[["loss"]]


def waits(runs: xr.Dataset, high: float, low: float, part: float = 0.1) -> Float[np.ndarray, " run"]:
    """t/τ until each loss has made this part of its fall from one level to another; nan if it never does."""
    level = high - part * (high - low)
    return np.array([passage_time(runs["time"].values, loss, level) for loss in runs["loss"].values])


def slope(x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"]) -> float:
    """Of the straight line through the points, by least squares."""
    return float(np.polyfit(x, y, 1)[0])
