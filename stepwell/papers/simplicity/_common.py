"""What figures of this paper share: what a claim compares of an array, and maps of networks against constructions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from stepwell.analysis.style import BLACK


def chosen(values: xr.DataArray, where: xr.DataArray) -> xr.DataArray:
    """Those values that are chosen, in one row, each with its coordinates; what is infinite is nan, which fails."""
    kept = xr.broadcast(values, where)[1].transpose(*values.dims)
    return values.where(np.isfinite(values)).stack(place=values.dims)[kept.values.ravel()]


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
