"""The drawing of Fig 1."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, GREY, ORANGE, PALETTE, SKY, new_figure, styled

from ._full_model import DIM, DIMS, HEADS, TASKS

_TIME = "time t = rate × step"
_NAMES = ("$W_X$", "$W_Y$", "$U_X$", "$U_Y$")


def draw(data: dict[str, xr.Dataset]) -> Figure:
    runs = data["descent"]
    shown = runs.isel(run=int(np.argmax(runs["batch"].values)))
    with styled():
        figure = new_figure(12.0, 7.4)
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.05, 1))
        above, below = halves
        courses = above.subplots(1, 3)
        _course(courses[0], data, shown, "omega", DIMS[0] ** 0.5)
        _course(courses[1], data, shown, "mu", 1.0)
        _loss(courses[2], data, shown)
        panels = below.subplots(1, 1 + HEADS, width_ratios=(1.45, *[1.0] * HEADS))
        _departures(panels[0], data)
        for head, axes in enumerate(panels[1:]):
            _weights(axes, shown, head)
    return figure


def _course(axes: Any, data: dict[str, xr.Dataset], shown: xr.Dataset, name: str, unit: float) -> None:
    time = shown["time"].values
    for head in range(HEADS):
        for task in range(TASKS):
            own = head == task
            line = {"color": PALETTE[head]} if own else {"color": GREY, "linewidth": 0.8}
            label = f"head {head + 1} on task {task + 1}" if own else None
            axes.plot(time, unit * shown[name].values[:, head, task], label=label, **line)
    axes.plot([], [], color=GREY, linewidth=0.8, label="heads on other tasks")
    for key, style, label in (("population", "--", "exact loss"), ("spectral", ":", "spectral flow")):
        course = data[key].sel(time=data[key]["time"] <= time[-1])
        axes.plot(course["time"], unit * course[name].values[:, 0, 0], style, color=BLACK, linewidth=1.3, label=label)
        axes.plot(course["time"], unit * course[name].values[:, 0, 1], style, color=BLACK, linewidth=1.0)
    limit = float(data["theory"][name][0]) * unit
    axes.axhline(limit, color=ORANGE, linewidth=1.0, zorder=0)
    words = {
        "omega": ("(a) Scores: ω√d of each head and task", "ω√d", "1", (1, 4)),
        "mu": ("(b) Readout: μ of each head and task", "μ", "√d/(1+ρ)", (1, -13)),
    }
    title, label, named, offset = words[name]
    axes.annotate(named, (0.0, limit), xytext=offset, textcoords="offset points", color="#8a5f00", fontsize=9)
    axes.set_title(title)
    axes.set_ylabel(label)
    axes.set_xlabel(_TIME)
    axes.set_xlim(0, time[-1])
    if name == "omega":
        axes.legend(loc="center left", bbox_to_anchor=(0.0, 0.62), fontsize=8.5)


def _loss(axes: Any, data: dict[str, xr.Dataset], shown: xr.Dataset) -> None:
    time, predictions = shown["time"].values, data["theory"]
    first, half, last = shown["span"].values
    edges = (0.0, first, last, float(time[-1]))
    if np.isfinite(half):
        axes.axvspan(first, last, color=SKY, alpha=0.25, linewidth=0)
        for word, left, right in zip(("warm-up", "emergence", "convergence"), edges[:-1], edges[1:], strict=True):
            axes.text((left + right) / 2, 35.4, word, ha="center", fontsize=9)
    axes.plot(time, shown["loss"], color=PALETTE[0], linewidth=0.8, label=f"batches of {int(shown['batch'])}")
    for key, style, label in (("population", "--", "exact loss"), ("spectral", ":", "spectral flow")):
        course = data[key].sel(time=data[key]["time"] <= time[-1])
        axes.plot(course["time"], course["loss"], style, color=BLACK, linewidth=1.4, label=label)
    early, late = predictions["bracket"].values
    axes.plot([early, late], [2.0, 2.0], "|-", color=ORANGE, markersize=9, label="law: between these")
    axes.set_ylim(0, 37.5)
    axes.set_xlim(0, time[-1])
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss, summed over tasks")
    axes.set_title("(c) The loss, and its three phases")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 0.14), fontsize=8.5)


def _departures(axes: Any, data: dict[str, xr.Dataset]) -> None:
    gradient, runs = data["gradient"], data["descent"]
    for matrix, marker in (("W", "o"), ("U", "s")):
        one = gradient.sel(matrix=matrix)
        style: dict[str, Any] = {"color": BLACK, "linewidth": 1.0, "markersize": 5, "label": f"gradient in {matrix}"}
        axes.plot(one["sequences"], one["off"] / one["on"], marker + "-", **style)
    on = {0: 3**0.5, 1: 3**0.5, 2: 3**0.5 * float(data["theory"]["mu"][0]), 3: 3**0.5 * float(data["theory"]["mu"][0])}
    for column, name in enumerate(_NAMES):
        sizes = runs["late_off"].values[:, column] / on[column]
        axes.plot(
            runs["batch"], sizes, "v", color=PALETTE[column], markersize=6, fillstyle="none", label=f"trained {name}"
        )
    ends = np.array([float(runs["batch"].min()), float(gradient["sequences"].max())])
    for height in (0.05, 6.0):
        label = "one over the root" if height > 1 else None
        axes.plot(ends, height * (ends / ends[0]) ** -0.5, "--", color=GREY, linewidth=1.0, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("sequences in a batch")
    axes.set_ylabel("off the structure / on it")
    axes.set_title("(d) Decomposable up to noise")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)


def _weights(axes: Any, shown: xr.Dataset, head: int) -> None:
    """W to the left and U, transposed, to the right: rows are the coordinates of a token."""
    scores, readout = shown["scores"].values[head], shown["readout"].values[head].T
    gap = 2
    image = np.full((DIM + TASKS, DIM + gap + 3 * TASKS), np.nan)
    image[:, :DIM] = scores / np.abs(shown["scores"].values).max()
    image[:, DIM + gap :] = np.repeat(readout / np.abs(shown["readout"].values).max(), 3, axis=1)
    axes.imshow(image, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest", aspect="auto")
    axes.axhline(DIM - 0.5, color=GREY, linewidth=0.7)
    for edge in np.cumsum(DIMS)[:-1]:
        axes.axhline(edge - 0.5, color=GREY, linewidth=0.3)
        axes.axvline(edge - 0.5, color=GREY, linewidth=0.3)
    axes.set_xticks([DIM / 2, DIM + gap + 1.5 * TASKS], ["W", "Uᵀ"])
    axes.set_yticks([5, 15, 25, 31.5], ["$x^{(1)}$", "$x^{(2)}$", "$x^{(3)}$", "y"] if head == 0 else [])
    axes.tick_params(length=0)
    axes.set_title(f"(e) Head {head + 1}, trained" if head == 0 else f"Head {head + 1}")
    for side in axes.spines.values():
        side.set_visible(False)
