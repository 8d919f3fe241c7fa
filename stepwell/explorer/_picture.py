"""Views as a figure for a paper: loss, weights, and what was learned."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled

View = dict[str, Any]
_LINES = (BLACK, *PALETTE)


def draw(views: Sequence[View], names: Sequence[str], *, log: bool = True) -> Figure:
    """The losses of up to four configurations on one axis; below, the weights and the map of the first.

    `names` are what the configurations are called in the legend.
    """
    first = views[0]
    with styled():
        figure = new_figure(8.0, 6.0)
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1))
        above, below = parts
        _draw_losses(above.subplots(), views, names, log=log)
        if "omega" in first:
            axes = below.subplots(1, 2)
            _draw_heads(axes[0], first, first["omega"].reshape(first["time"].size, -1), r"$\omega$", log=log)
            _draw_heads(axes[1], first, first["allocation"].reshape(first["time"].size, -1), r"$\mu\omega$", log=log)
        elif "values" in first:
            mapped = "map" in first
            axes = below.subplots(1, 3, width_ratios=(1.6, 1, 1)) if mapped else [below.subplots()]
            _draw_heads(axes[0], first, first["values"], "value weights", log=log, dashed=first["values_theory"])
            if mapped:
                top = float(max(np.abs(first["map"][-1]).max(), np.abs(first["target"]).max())) or 1.0
                for place, (title, matrix) in enumerate(
                    {"effective map": first["map"][-1], "target": first["target"]}.items()
                ):
                    axes[place + 1].imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top)
                    axes[place + 1].set(title=title, xticks=[], yticks=[])
    return figure


def _times(axes: Any, view: View, *, log: bool) -> None:
    time = view["time"]
    axes.set_xlabel("step" if view["time_name"] == "step" else f"time {view['time_name']}")
    if log and time[-1] > 0:
        axes.set_xscale("log")
        axes.set_xlim(max(1e-3 * time[-1], float(time[time > 0].min())), time[-1])


def _draw_losses(axes: Any, views: Sequence[View], names: Sequence[str], *, log: bool) -> None:
    first = views[0]
    for number, (view, name) in enumerate(zip(views, names, strict=True)):
        axes.plot(view["time"], view["loss"], color=_LINES[number], label=name)
    for level in [*first.get("levels", ()), *first.get("limits", {}).values()]:
        axes.axhline(level, color=GRAY, linestyle=":", linewidth=1.2, zorder=0)
    for time in first.get("drop_times", ()):
        if np.isfinite(time):
            axes.axvline(time, color=GRAY, linestyle="--", linewidth=1.0, zorder=0)
    longest = max(views, key=lambda view: float(view["time"][-1]))
    _times(axes, longest, log=log)
    top = 3 * max(float(view["loss"][0]) for view in views)
    axes.set_ylim(0, 1.05 * min(max(float(np.max(view["loss"])) for view in views), top))
    axes.set_ylabel("loss")
    if len(views) > 1:
        axes.legend()


def _draw_heads(
    axes: Any, view: View, curves: np.ndarray, title: str, *, log: bool, dashed: np.ndarray | None = None
) -> None:
    for head in range(curves.shape[1]):
        color = PALETTE[head % len(PALETTE)]
        axes.plot(view["time"], curves[:, head], color=color)
        if dashed is not None:
            axes.plot(view["time"], dashed[:, head], color=color, linestyle="--", linewidth=1.0)
    _times(axes, view, log=log)
    axes.set_title(title)
