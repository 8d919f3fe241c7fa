"""The drawing of Fig 1."""

from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, GRAY, ORANGE, PALETTE, SKY, new_figure, styled
from stepwell.figures import Data

from ._batch_axes import against_batches
from ._fig01_claims import late_part
from ._full_model import FirstSetting

_TIME = "time t = rate × step"
_NAMES = ("$W_X$", "$W_Y$", "$U_X$", "$U_Y$")
_CALM = (("population", "--", "exact loss"), ("spectral", ":", "spectral flow"))


def draw(data: Data, settings: FirstSetting) -> matplotlib.figure.Figure:
    runs, root = data["descent"], settings.dims[0] ** 0.5
    shown = runs.isel(run=int(np.argmax(runs["batch"].values)))
    with styled():
        figure = new_figure(12.0, 7.6)
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.1, 1))
        above, below = halves
        a, b, c = above.subplots(1, 3)
        _course(a, data, shown, "omega", root)
        _course(b, data, shown, "mu", 1.0)
        _loss(c, data, shown, sum(settings.dims))
        d, e, f = below.subplots(1, 3, width_ratios=(1.3, 0.9, 1))
        _departures(d, data)
        _converged(e, shown, data["population"].isel(time=-1).mean("set"), root)
        _approach(f, data)
    return figure


def _calm(data: Data, key: str, until: float) -> xr.Dataset:
    """A course without noise, in the mean over sets of samples if there are several, up to a time."""
    course = data[key].mean("set") if "set" in data[key].dims else data[key]
    return course.sel(time=course["time"] <= until)


def _course(axes: Any, data: Data, shown: xr.Dataset, name: str, unit: float) -> None:
    time = shown["time"].values
    tasks = shown.sizes["task"]
    for head in range(tasks):
        for task in range(tasks):
            own = head == task
            line = {"color": PALETTE[head % len(PALETTE)]} if own else {"color": GRAY, "linewidth": 0.8}
            label = f"head {head + 1} on task {task + 1}" if own else None
            axes.plot(time, unit * shown[name].values[:, head, task], label=label, **line)
    axes.plot([], [], color=GRAY, linewidth=0.8, label="heads on other tasks")
    for key, style, label in _CALM:
        course = _calm(data, key, time[-1])
        axes.plot(course["time"], unit * course[name].values[:, 0, 0], style, color=BLACK, linewidth=1.3, label=label)
        axes.plot(
            course["time"], unit * course[name].values[:, 0, min(1, tasks - 1)], style, color=BLACK, linewidth=1.0
        )
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
        axes.set_ylim(-0.04, 1.12)
        axes.legend(loc="center left", bbox_to_anchor=(0.0, 0.6), fontsize=8.5)


def _loss(axes: Any, data: Data, shown: xr.Dataset, signal: float) -> None:
    time, predictions = shown["time"].values, data["theory"]
    first, last = shown["phase"].values
    edges = (0.0, first, last, float(time[-1]))
    if np.isfinite(first):
        axes.axvspan(first, last, color=SKY, alpha=0.25, linewidth=0)
        for word, left, right in zip(("warm-up", "emergence", "convergence"), edges[:-1], edges[1:], strict=True):
            axes.text((left + right) / 2, 1.18 * signal, word, ha="center", fontsize=9)
    axes.plot(time, shown["loss"], color=PALETTE[0], linewidth=0.8, label=f"batches of {int(shown['batch'])}")
    for key, style, label in _CALM:
        course = _calm(data, key, time[-1])
        axes.plot(course["time"], course["loss"], style, color=BLACK, linewidth=1.4, label=label)
    early, late = predictions["bracket"].values
    axes.plot([early, late], [signal / 15] * 2, "|-", color=ORANGE, markersize=9, label="predicted bracket")
    axes.set_ylim(0, 1.25 * signal)
    axes.set_xlim(0, time[-1])
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss, summed over tasks")
    axes.set_title("(c) The loss, and its three phases")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 0.14), fontsize=8.5)


def _departures(axes: Any, data: Data) -> None:
    gradient, runs, predictions = data["gradient"], data["descent"], data["theory"]
    for matrix, marker in (("W", "o"), ("U", "s")):
        one = gradient.sel(matrix=matrix)
        style: dict[str, Any] = {"color": BLACK, "markersize": 4, "fillstyle": "none"}
        axes.plot(one["sequences"], one["off"] / one["on"], marker, label=f"gradient in {matrix}", **style)
    for column, (name, marker) in enumerate(zip(_NAMES, "v<>^", strict=True)):
        on = runs.sizes["task"] ** 0.5 * (float(predictions["mu"][0]) if column > 1 else 1.0)
        style = {"color": PALETTE[column], "markersize": 6, "fillstyle": "none"}
        axes.plot(runs["batch"], runs["late_off"].values[:, column] / on, marker, label=f"trained {name}", **style)
    ends = np.array([runs["batch"].min(), max(*runs["batch"].values, *gradient["sequences"].values, 0)], dtype=float)
    for height in (0.03, 6.0):
        label = "one over the root" if height > 1 else None
        axes.plot(ends, height * (ends / ends[0]) ** -0.5, "--", color=GRAY, linewidth=1.0, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("sequences in a batch")
    axes.set_ylabel("off the structure / on it")
    axes.set_title("(d) Decomposable up to noise")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)


def _converged(axes: Any, shown: xr.Dataset, calm: xr.Dataset, root: float) -> None:
    tasks = shown.sizes["task"]
    values, later = (root * each for each in (shown["omega"].values[-1], calm["omega"].values))
    axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="equal")
    for head in range(tasks):
        for task in range(tasks):
            color = "white" if abs(values[head, task]) > 0.6 else BLACK
            axes.text(task, head - 0.12, f"{values[head, task]:.2f}", ha="center", va="center", color=color)
            axes.text(task, head + 0.2, f"({later[head, task]:.2f})", ha="center", va="center", color=color, fontsize=8)
    axes.set_xticks(range(tasks), [str(task + 1) for task in range(tasks)])
    axes.set_yticks(range(tasks), [str(head + 1) for head in range(tasks)])
    axes.tick_params(length=0)
    axes.set_xlabel("task")
    axes.set_ylabel("head")
    axes.set_title(f"(e) ω√d at t = {float(shown['time'][-1]):g} (exact loss, {float(calm['time']):g})")
    for side in axes.spines.values():
        side.set_visible(False)


def _approach(axes: Any, data: Data) -> None:
    runs = data["descent"]
    late = late_part(data["population"], runs.attrs["late"])
    axes.set_ylabel("relative difference from the exact loss")
    axes.set_title("(f) Whole matrices as batches grow")
    if not np.isfinite(late["loss"] + runs["late_loss"]).any():
        axes.text(0.5, 0.5, "training ends before the drop is over", ha="center", transform=axes.transAxes)
        return
    every = np.unique(runs["batch"].values)
    for name, word, marker, color in (
        ("omega", "ω", "o", PALETTE[0]),
        ("mu", "μ", "s", PALETTE[1]),
        ("loss", "loss", "D", PALETTE[2]),
    ):
        calm = late[name].values if name == "loss" else np.einsum("...hh->...h", late[name].values)
        ends = runs[f"late_{name}"].values
        away = np.abs((ends if name == "loss" else ends.mean(axis=1)) / calm.mean() - 1)
        axes.plot(runs["batch"], away, marker, color=color, markersize=5, fillstyle="none", label=word)
        first = np.exp(np.log(away[runs["batch"].values == every[0]]).mean())
        axes.plot(every, first * every[0] / every, "--", color=color, linewidth=1.0)
    against_batches(axes, every)
    axes.legend(loc="lower left", fontsize=8.5)
