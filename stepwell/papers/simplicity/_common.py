"""What figures of this paper share: what claims compare, levels, times of drops, and maps against constructions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.interpolate
import scipy.optimize
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from stepwell.analysis.style import BLACK


def chosen(values: xr.DataArray, where: xr.DataArray) -> xr.DataArray:
    """Those values that are chosen, in one row, each with its coordinates; what is infinite is nan, which fails."""
    kept = xr.broadcast(values, where)[1].transpose(*values.dims)
    return values.where(np.isfinite(values)).stack(place=values.dims)[kept.values.ravel()]


def linear_levels(strengths: Float[np.ndarray, " mode"]) -> Float[np.ndarray, " level"]:
    """The losses of the best linear maps of each rank on white inputs; strengths fall."""
    return np.append(np.cumsum(strengths[::-1] ** 2)[::-1], 0.0)


def passage(times: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"], level: float) -> float:
    """When the loss passes a level, by cubic interpolation."""
    below = np.flatnonzero(loss < level)
    if not below.size or below[0] < 1:
        return np.nan
    part = slice(max(below[0] - 8, 0), below[0] + 8)
    course = scipy.interpolate.CubicSpline(times[part], loss[part] - level)
    passed: Any = scipy.optimize.brentq(course, times[below[0] - 1], times[below[0]], xtol=1e-12)
    return float(passed)


def draw_table(axes: Axes, sizes: xr.DataArray, boxed: xr.DataArray, *, rows: Sequence[str], floor: float) -> Any:
    """Sizes by row and network in shades of their logarithms, those that should vanish in a box: what was shaded."""
    shown = sizes.transpose(..., "network").values
    image = axes.imshow(np.log10(np.maximum(shown, floor)), cmap="cividis", vmin=np.log10(floor), vmax=1, aspect="auto")
    for row, column in np.argwhere(boxed.transpose(..., "network").values):
        axes.add_patch(Rectangle((column - 0.45, row - 0.43), 0.9, 0.86, fill=False, edgecolor="white", linewidth=1.3))
    for row, column in np.argwhere(~np.isfinite(shown)):
        axes.text(float(column), float(row), "–", ha="center", va="center", color=BLACK)
    axes.set_xticks(range(shown.shape[1]), [str(name) for name in sizes["network"].values], rotation=40, ha="right")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    return image
