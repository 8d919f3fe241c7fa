"""The loss of a run, with what the theory says of it."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.theory import LinearTask, linear

from ._compare import compare, convention
from ._draw_axes import LABELS, curve_axis, draw_levels, set_points
from ._style import BLACK, VERMILION, new_figure, styled

_MANY = 12
"""Ensembles of more runs than this are drawn with thinner lines."""


@checked
def draw_staircase(
    trajectory: xr.Dataset, task: LinearTask | None = None, *, log: bool = False, title: str = ""
) -> Figure:
    """The loss against steps or time, a line for each run; with a task, the theory's levels and predicted drops too.

    Drops are predicted for linear separate and merged attention; of other models, levels are drawn alone.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned, one run or an ensemble.
    - `task`: the regression that it was trained on. By default nothing but the loss is drawn, which needs no theory.
    - `log`: whether the axis of steps or time is logarithmic.
    - `title`: a title, by default none.

    **Returns:** the matplotlib figure.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.descend(model, sw.objectives.Population(task), rate=0.05, steps=600, progress=False)
    >>> figure = sw.analysis.draw_staircase(trajectory, task)
    >>> figure.savefig("staircase.png")
    >>> figure.axes[0].get_xlabel()
    'training step'
    """
    axis = curve_axis(trajectory)
    points = trajectory[axis].values.astype(float)
    table = None if task is None else _drops(trajectory, task)
    with styled():
        figure = new_figure(6.4, 3.8)
        axes = figure.subplots()
        count = trajectory.sizes["run"]
        for number, loss in enumerate(trajectory["loss"].transpose("run", axis, ...).values):
            label = ("loss" if count == 1 else f"loss of {count} runs") if number == 0 else None
            width = 1.6 if count == 1 else 1.0 if count <= _MANY else 0.7
            axes.plot(points, loss, color=BLACK, linewidth=width, label=label)
        if table is not None and task is not None:
            levels = np.array([linear.levels(task)[0], *table.loc[table["run"] == table["run"][0], "level"]])
            draw_levels(axes, levels)
            _draw_drops(axes, table, levels, points, stepped=axis == "step")
        elif task is not None:
            draw_levels(axes, linear.levels(task))
        set_points(axes, trajectory, log=log)
        finite = trajectory["loss"].values[np.isfinite(trajectory["loss"].values)]
        axes.set_ylim(0, 1.08 * min(float(finite.max()), 3 * float(finite[0])) if finite.size else 1.0)
        axes.set(xlabel=LABELS[axis], ylabel="loss", title=title)
        if table is not None or count > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return figure


def _drops(trajectory: xr.Dataset, task: Any) -> pd.DataFrame | None:
    """The table of drops, None for a model of which the theory predicts none."""
    try:
        convention(trajectory, task)
    except InvalidInput:
        return None
    return compare(trajectory, task)


def _draw_drops(axes: Any, table: pd.DataFrame, levels: np.ndarray, points: np.ndarray, *, stepped: bool) -> None:
    """A mark halfway between two levels, where the theory says that the loss passes."""
    predicted = np.asarray(table["predicted_step" if stepped else "predicted"], dtype=float)
    seen = (predicted > points[0]) & (predicted <= points[-1])
    place = np.asarray(table["drop"])[seen]
    half = (levels[place - 1] + levels[place]) / 2
    if place.size:
        style = {"markersize": 6.0, "markerfacecolor": "none", "markeredgewidth": 1.4, "color": VERMILION}
        axes.plot(predicted[seen], half, "D", label="predicted drops", zorder=4, **style)
