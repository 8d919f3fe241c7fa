"""Every weight of a run, head by head."""

import json
import math
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from ._draw_axes import LABELS, curve_axis, run_of, set_points, weight_axis
from ._style import BLACK, PALETTE, new_figure, styled

_COLUMNS = 3


@checked
def draw_weights(trajectory: xr.Dataset, *, run: int = 0, log: bool = False, title: str = "") -> Figure:
    """The size of every weight along a run: a panel for each array, a line for each head.

    The size is the root of the sum of squares over all but the heads. It works for every model: weights without heads
    are one line.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.
    - `run`: which run of an ensemble is drawn, counted from 0.
    - `log`: whether the axis of steps or time is logarithmic.
    - `title`: a title, by default none.

    **Returns:** the matplotlib figure.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> [axes.get_title("left") for axes in sw.analysis.draw_weights(trajectory).axes]
    ['value', 'key', 'query']
    """
    sizes = weight_sizes(trajectory, run)
    axis = weight_axis(trajectory)
    with styled():
        columns = min(_COLUMNS, len(sizes))
        rows = math.ceil(len(sizes) / columns)
        figure = new_figure(3.2 * columns + 0.6, 2.7 * rows)
        panels = np.ravel(figure.subplots(rows, columns, sharex=True, squeeze=False))
        for panel, (name, lines) in zip(panels, sizes.items(), strict=False):
            draw_heads(panel, trajectory[axis].values, lines)
            set_points(panel, run_of(trajectory, run), log=log)
            panel.set_title(name)
            panel.set_xlabel(LABELS[axis])
        for panel in panels[len(sizes) :]:
            panel.set_visible(False)
        panels[0].set_ylabel("size of the weights")
        heads = max(lines.shape[1] for lines in sizes.values())
        if 1 < heads <= len(PALETTE):
            most = max(sizes, key=lambda name: sizes[name].shape[1])
            figure.legend(*panels[list(sizes).index(most)].get_legend_handles_labels(), loc="outside right upper")
        if title:
            figure.suptitle(title)
    return figure


def weight_sizes(trajectory: xr.Dataset, run: int) -> dict[str, np.ndarray]:
    """The size of each weight over (point, head), by name."""
    axis = weight_axis(trajectory)
    one = run_of(trajectory, run).isel(run=0)
    curve_axis(trajectory)
    curves = {"loss", axis, "time", "snapshot_time", *_observed(trajectory)}
    # A weight that has the name of an axis, which then has several dimensions, is a coordinate for xarray.
    names = [str(n) for n, v in one.variables.items() if axis in v.dims and (n not in curves or v.ndim > 1)]
    if not names:
        raise InvalidInput(
            "the data set has no weights over snapshot or time; give what descend, online or flow returned"
        )
    sizes = {}
    for name in names:
        values = one.variables[name]
        inner = [dim for dim in values.dims if dim not in (axis, "head")]
        total = (values**2).sum(inner) ** 0.5
        sizes[name] = total.transpose(axis, "head").values if "head" in total.dims else total.values[:, None]
    return sizes


def _observed(trajectory: xr.Dataset) -> list[str]:
    """The names of observed curves, which may have any shape, as the provenance lists them."""
    try:
        return list(json.loads(trajectory.attrs["configuration"])["observed"])
    except (KeyError, ValueError, TypeError):
        return []


def draw_heads(axes: Any, points: np.ndarray, lines: np.ndarray) -> list[Any]:
    """A line for each head; the lines."""
    count, drawn = lines.shape[1], []
    for head in range(count):
        color = BLACK if count == 1 else PALETTE[head % len(PALETTE)]
        drawn += axes.plot(points, lines[:, head], color=color, linewidth=1.6, label=f"head {head + 1}")
    top = float(np.nanmax(lines, initial=0.0))
    axes.set_ylim(0, 1.08 * top if top > 0 else 1.0)
    return drawn
