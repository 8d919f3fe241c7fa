"""What all drawings of a run share: its axis, its levels, and which points a film shows."""

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.ticker import NullFormatter

from stepwell._util.errors import InvalidInput

LABELS = {"step": "training step", "snapshot": "training step", "time": r"flow time $t/\tau$"}
QUIET = "#555555"
_LARGEST = 1e100
_MARGIN = 0.02
"""By which the axis is longer than the run."""
_MOVED = 0.01
"""The part of its whole fall by which the loss has moved."""
_BEFORE = 0.1
"""A logarithmic axis begins at this part of the time when it has."""


def curve_axis(trajectory: xr.Dataset) -> str:
    """The axis of curves, `step` or `time`."""
    for axis in ("step", "time"):
        if axis in trajectory.dims and "loss" in trajectory and axis in trajectory["loss"].dims:
            return axis
    raise InvalidInput("the data set has no loss over step or time; give what descend, online or flow returned")


def weight_axis(trajectory: xr.Dataset) -> str:
    """The axis of weights, `snapshot` or `time`."""
    return "snapshot" if "snapshot" in trajectory.dims else "time"


def run_of(trajectory: xr.Dataset, run: int) -> xr.Dataset:
    """One run of an ensemble, still with the dimension `run`."""
    size = trajectory.sizes["run"] if "run" in trajectory.dims else 0
    if not -size <= run < size:
        raise InvalidInput(f"run is {run}; the trajectory has {size} runs, counted from 0")
    return trajectory.isel(run=[run])


def draw_levels(axes: Any, levels: Float[np.ndarray, " level"], *, apart: float = 0.05) -> None:
    """Dotted lines with labels at the right; a label that would run into the one before is left out."""
    if levels.size == 0:
        return
    last = np.inf
    for m, level in enumerate(levels.tolist()):
        axes.axhline(level, color="#767676", linestyle=":", linewidth=1.3, zorder=0)
        if last - level > apart * levels[0]:
            last = level
            place = {"xycoords": ("axes fraction", "data"), "va": "center", "color": QUIET, "fontsize": 9}
            axes.annotate(f"$L_{{{m}}}$", (1.01, level), annotation_clip=False, **place)


def set_points(axes: Any, trajectory: xr.Dataset, *, log: bool) -> None:
    """The axis of steps or time: a little longer than the run, so that what happens at its end is seen.

    A logarithmic one begins shortly before the loss first moves: the first steps of a solver show nothing.
    """
    points = trajectory[curve_axis(trajectory)].values.astype(float)
    first, last = float(points[0]), float(points[-1])
    if not log or not last > 0:
        axes.set_xlim(first, last + _MARGIN * (last - first) if last > first else first + 1.0)
        return
    losses = drawable(trajectory["loss"].values)
    fall = np.nanmax(losses[:, :1] - losses, axis=0, initial=0.0)
    moved = points[(fall > _MOVED * fall.max()) & (points > 0)]
    begin = max(float(points[points > 0].min()), _BEFORE * float(moved[0]) if moved.size else 0.0)
    axes.set_xscale("log")
    if last > 10 * begin:  # a power of ten is named; what is between would be crowded
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(begin, last * (last / begin) ** _MARGIN if last > begin else 10 * last)


def drawable(values: np.ndarray) -> np.ndarray:
    """Values, with NaN for those of a run that diverges which matplotlib could not place."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) < _LARGEST, values, np.nan)


def frame_places(
    time: Float[np.ndarray, " point"], loss: Float[np.ndarray, " point"], count: int
) -> Int[np.ndarray, " frame"]:
    """Places of recorded points: half of the film follows time, half the fall of the loss."""
    fall = -np.minimum.accumulate(loss)
    parts = [(x - x[0]) / (x[-1] - x[0]) for x in (time, fall) if x[-1] > x[0]]
    clock = np.sum(parts, axis=0) if parts else np.zeros(time.size)
    return np.unique(np.searchsorted(clock, np.linspace(0, clock[-1], count)).clip(0, clock.size - 1))


def loss_at(trajectory: xr.Dataset, points: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """The loss of the first run where weights were recorded."""
    axis = curve_axis(trajectory)
    return np.interp(points, trajectory[axis].values.astype(float), trajectory["loss"].values[0])
