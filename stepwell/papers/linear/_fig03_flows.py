"""Fig 3: gradient flow saved finely where drops are, wherever they are."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from jaxtyping import Float

WINDOW = 8.0
"""About each drop a run is saved for so many time constants before and after."""
_SPACING = 1 / 8
"""Of the save times there, in time constants: splines through them are good to 10⁻⁵ of one."""
_PARTS = 40
"""Into so many parts an interval with a drop is divided at a time."""


def saved_at_drops(
    flow: Callable[[Float[np.ndarray, " time"]], xr.Dataset],
    times: Float[np.ndarray, " time"],
    thresholds: Float[np.ndarray, " drop"],
    constants: Float[np.ndarray, " drop"],
) -> xr.Dataset:
    """What `flow` makes of save times that are fine about every passage of a loss through a threshold.

    `times` are any that contain the passages. They are searched for in smaller and smaller intervals, each time with
    a flow of all runs, which is cheap: a drop of the length `constants` may come after a wait of a million of them.
    """
    while True:
        run = flow(times)
        brackets = _brackets(run, thresholds)
        if not brackets:
            return run
        wide = [(a, b, d) for a, b, d in brackets if b - a > constants[d]]
        if not wide:
            break
        times = _union([np.linspace(a, b, _PARTS + 1) for a, b, _ in brackets])
    count = round(2 * WINDOW / _SPACING) + 1
    around = np.linspace(-WINDOW, WINDOW, count)
    return flow(_union([(a + b) / 2 + constants[d] * around for a, b, d in brackets]))


def _brackets(run: xr.Dataset, thresholds: Float[np.ndarray, " drop"]) -> list[tuple[float, float, int]]:
    """The saved times between which each run passes each threshold, with the threshold's number."""
    time, losses = run["time"].values, run["loss"].values
    crossings = []
    for loss in losses:
        for number, threshold in enumerate(thresholds):
            below = np.flatnonzero(loss < threshold)
            if below.size and below[0] > 0:
                crossings.append((float(time[below[0] - 1]), float(time[below[0]]), number))
    return crossings


def _union(parts: list[np.ndarray]) -> Float[np.ndarray, " time"]:
    """All times from 0 on, rising, none so close to the last that rounding makes them equal."""
    times = np.unique(np.concatenate(parts))
    times = times[times > 0]
    return np.concatenate([[0.0], times[np.diff(times, prepend=0.0) > 1e-12 * times]])
