"""The drawing of Fig 4."""

from itertools import cycle
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.figures import Data

_SHADES = (*PALETTE[:5], BLACK)


def draw(data: Data, settings: object) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(12.6, 8.2)
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.1, 1))
        above, below = halves
        a, b = above.subplots(1, 2, width_ratios=(1.5, 1))
        c, d, e = below.subplots(1, 3)
        _bounds(a, data["curves"])
        _search(b, data["searched"])
        _softmax(c, data["softmax"])
        _factor(d, data["curves"], data["positive"])
        _angles(e, data["angles"])
    return figure


def _bounds(axes: Any, curve: xr.Dataset) -> None:
    tasks = curve.attrs["tasks"]
    for heads, color in zip(curve["heads"].values, cycle(_SHADES), strict=False):
        label = f"H = {heads}" if heads <= tasks else f"H ≥ {heads}"
        axes.plot(curve["ratio"], curve["bound"].sel(heads=heads), color=color, label=label)
    axes.plot(curve["ratio"], curve["flow"], "--", color=BLACK, linewidth=1.4, label="limit of the flow")
    axes.plot(curve["ratio"], curve["bayes"], ":", color=GRAY, linewidth=2.4, label="Bayes risk")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.01, 5)
    axes.set_xlabel("dimension of a task over context, d/L")
    axes.set_ylabel("loss of a task / its signal")
    axes.set_title(f"(a) Lower bound for H heads, I = {tasks} tasks")
    axes.legend(loc="lower right", ncols=2)


def _search(axes: Any, minima: xr.Dataset) -> None:
    bound, loss = minima["bound"] / minima["signal"], minima["loss"] / minima["signal"]
    axes.plot([0.08, 1], [0.08, 1], color=GRAY, linewidth=1.0, label="search = bound")
    for heads in range(1, int(minima["heads"].max()) + 1):
        chosen = np.flatnonzero(minima["heads"] == heads)
        runs = np.broadcast_to(bound.values[chosen, None], loss.values[chosen].shape)
        style: dict[str, Any] = {"color": _SHADES[heads - 1], "fillstyle": "none", "markersize": 12 - 1.6 * heads}
        axes.plot(runs.ravel(), loss.values[chosen].ravel(), "o", label=f"H = {heads}", **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
        axis.set_ticks([0.1, 0.2, 0.5, 1.0])
    axes.set_xlabel("bound / signal")
    axes.set_ylabel("least spectral loss / signal")
    axes.set_title("(b) Search over signed weights, I = 1, 2, 3")
    axes.legend(loc="upper left")


def _softmax(axes: Any, minima: xr.Dataset) -> None:
    over, error = minima["loss"] / minima["bound"], minima["error"] / minima["bound"]
    heads, count = minima["heads"].values, minima.sizes["run"]
    axes.axhline(1, color=GRAY, linewidth=1.0)
    styles = cycle(((VERMILION, "o"), (PALETTE[0], "s"), (PALETTE[2], "D")))
    for size, (color, marker) in zip(range(minima.sizes["size"]), styles, strict=False):
        one = minima.isel(size=size)
        label = f"d = {int(one['dim'])}, L = {int(one['context'])}"
        mean, spread = over.isel(size=size).mean("run"), 2 * error.isel(size=size).max("run") / count**0.5
        axes.errorbar(heads, mean, spread, fmt=marker, color=color, markersize=5, capsize=3, label=label)
        many = heads > 2
        linear = (one["linear"] / one["bound"]).values[many]
        axes.plot(heads[many], linear, "--", color=color, linewidth=1.0)
    axes.plot([], [], "--", color=GRAY, linewidth=1.0, label="linear attention, L − 1 pairs")
    axes.annotate("bound", (heads[0], 1.0), xytext=(-8, -12), textcoords="offset points", color="#555555", fontsize=9)
    axes.set_ylim(0.994, 1 + 1.75 * max(0.01, float(over.max()) - 1))
    axes.set_xticks(heads)
    axes.set_xlim(heads[0] - 0.4, heads[-1] + 0.4)
    axes.set_xlabel("heads H, on two tasks")
    axes.set_ylabel("least loss / bound")
    axes.set_title("(c) Softmax attention itself")
    axes.legend(loc="upper left", fontsize=8.5)


def _factor(axes: Any, curve: xr.Dataset, trained: xr.Dataset) -> None:
    many = curve["many"]
    axes.axhline(np.e, color=GRAY, linestyle="--", linewidth=1.0)
    axes.annotate("e", (4.2, np.e), xytext=(0, 3), textcoords="offset points", color="#555555")
    axes.axhline(1, color=GRAY, linewidth=1.0)
    axes.plot(curve["ratio"], curve["flow"] / many, "--", color=BLACK, linewidth=1.4, label="limit of the flow")
    above = trained["loss"] / trained["bound"]
    label = f"softmax, trained, d = {int(trained['dim'][0])}"
    axes.plot(trained["ratio"], above, "o", color=VERMILION, markersize=6, label=label)
    axes.plot(curve["ratio"], curve["bayes"] / many, ":", color=GRAY, linewidth=2.4, label="Bayes risk")
    axes.set_xscale("log")
    axes.set_xlim(0.008, 6)
    axes.set_ylim(0, 4.6)
    axes.set_xlabel("dimension of a task over context, d/L")
    axes.set_ylabel("loss / bound for H ≥ I + 1")
    axes.set_title("(d) From positive weights: a factor e")
    axes.legend(loc="upper right", fontsize=8.5)


def _angles(axes: Any, runs: xr.Dataset) -> None:
    fills, tasks = ["none", *["full"] * (runs.sizes["size"] - 1)], runs["heads"] - 1
    loss, error = runs["loss"] / tasks, 2 * runs["error"] / tasks
    for heads, color in zip(runs["heads"].values, cycle((VERMILION, *PALETTE[2:4])), strict=False):
        axes.plot(
            runs["fine"], runs["curve"].sel(heads=heads), color=color, linewidth=1.4, label=f"H = {heads}, formula"
        )
        for size, fill in enumerate(fills):
            one, spread = (each.sel(heads=heads).isel(size=size) for each in (loss, error))
            style: dict[str, Any] = {"fmt": "o", "color": color, "markersize": 5, "capsize": 3, "fillstyle": fill}
            axes.errorbar(runs["flatness"], one, spread, **style)
    for size, fill in enumerate(fills):
        label = f"softmax, sampled: d = {int(runs['dim'][size])}, L = {int(runs['context'][size])}"
        axes.plot([], [], "o", color=GRAY, markersize=5, fillstyle=fill, label=label)
    axes.set_xscale("log")
    axes.set_xticks(runs["flatness"].values, [f"{a:g}" for a in runs["flatness"].values])
    axes.set_xticks([], minor=True)
    low, high = float(min(loss.min(), runs["curve"].min())), float(max(loss.max(), runs["curve"].max()))
    axes.set_ylim(low - 0.1 * (high - low), high + 0.22 * (high - low))
    axes.set_xlabel("size of a head's scores, |ω|²")
    axes.set_ylabel("loss of a task / its signal")
    axes.set_title("(e) Interacting heads at equal angles")
    axes.legend(loc="upper left", fontsize=8.5)
