"""An animation of a run."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.animation import FuncAnimation

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.theory import LinearTask, linear

from ._draw import (
    LABELS,
    curve_axis,
    draw_heads,
    draw_levels,
    draw_matrix,
    drawable,
    frame_places,
    loss_at,
    maps_of,
    run_of,
    set_points,
    weight_sizes,
)
from ._recorded import weight_axis
from ._style import BLACK, PALETTE, new_figure, styled

_MILLISECONDS = 90
_DPI = 80


@checked
def animate(
    trajectory: xr.Dataset, task: LinearTask | None = None, *, frames: int = 60, run: int = 0, title: str = ""
) -> FuncAnimation:
    """Return an animation of one run: its loss, weights and effective map moving together.

    Half of the frames follow time, and half the fall of the loss, so that neither plateaus nor drops take all of them.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned. Of a run without an effective map (which is not of
      separate or merged attention with one output) loss and weights are shown.
    - `task`: the regression that it was trained on, for levels of the loss; maps are then drawn in eigenvectors. By
      default no theory is shown.
    - `frames`: the number of frames, at the most; there are no more than recorded weights.
    - `run`: which run of an ensemble is shown, counted from 0.
    - `title`: a title, by default none.

    **Returns:** the matplotlib animation; `.to_jshtml()` shows it in a notebook.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> sw.analysis.animate(trajectory, task, frames=3).save("run.gif", writer="pillow")
    """
    frames = int(checks.number("frames", frames, least=2, most=10_000))
    one = run_of(trajectory, run)
    axis, along = curve_axis(trajectory), weight_axis(trajectory)
    points, recorded = one[along].values.astype(float), one[axis].values.astype(float)
    name, lines = next(iter(weight_sizes(one, 0).items()))
    losses, lines = drawable(one["loss"].values[0]), drawable(lines)
    try:
        maps = drawable(maps_of(one, task)[0])
    except InvalidInput:
        maps = None
    places = frame_places(points, drawable(loss_at(one, points)), frames)
    with styled():
        figure = new_figure(8.0 if maps is not None else 5.2, 3.9)
        figure.set_dpi(_DPI)
        parts: Any = figure.subfigures(1, 2, width_ratios=(1.35, 1)) if maps is not None else [figure]
        above, below = parts[0].subplots(2, 1, sharex=True)
        if task is not None and maps is not None:
            draw_levels(above, linear.levels(task), apart=0.12)
        (curve,) = above.plot(recorded, losses, color=BLACK)
        above.set(ylim=(0, 1.08 * float(np.nanmax(losses, initial=0.0)) or 1.0), ylabel="loss", title=title)
        heads = draw_heads(below, points, lines)
        set_points(below, one, log=False)
        below.set(ylabel=f"size of {name}", xlabel=LABELS[axis])
        if 1 < len(heads) <= len(PALETTE):
            below.legend(loc="upper left", ncols=len(heads), columnspacing=1.0, handlelength=1.0)
            below.set_ylim(0, 1.3 * below.get_ylim()[1])
        moving = None
        if maps is not None:
            axes = parts[1].subplots()
            moving = draw_matrix(
                axes, maps[-1], float(np.nanmax(np.abs(maps), initial=0.0)) or 1.0, in_eigenvectors=task is not None
            )
            axes.set_title("effective map")
        figure.draw_without_rendering()  # the layout, once
        figure.set_layout_engine("none")

    def show(place: int) -> list[Any]:
        end = int(np.searchsorted(recorded, points[place], side="right"))
        curve.set_data(recorded[:end], losses[:end])
        for head, line in enumerate(heads):
            line.set_data(points[: place + 1], lines[: place + 1, head])
        if moving is not None and maps is not None:
            moving.set_data(maps[place])
        return [curve, *heads, *([moving] if moving is not None else [])]

    return FuncAnimation(figure, show, frames=places.tolist(), interval=_MILLISECONDS, blit=False, repeat=False)  # pyright: ignore
