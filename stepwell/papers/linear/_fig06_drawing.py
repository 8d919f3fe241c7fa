"""Fig 6, drawn: losses of all scales, independent heads above and pairs below; waits and movements."""

from typing import Any

import matplotlib
import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm

from stepwell.analysis.style import BLACK, BLUE, VERMILION, new_figure, styled
from stepwell.figures import Data
from stepwell.models import MergedAttention, SeparateAttention

COLORS = {"merged": BLUE, "separate": VERMILION}
FACTORS = {"merged": MergedAttention.factors, "separate": SeparateAttention.factors}
SHADES = matplotlib.colormaps["plasma"].resampled(256)
NORM = LogNorm(1e-6, 60.0)
"""The lightest shades are left out: they are hard to see on white."""
HIGHEST = {"independent": 1.6, "pairs": 1.08}
"""Losses above are not shown."""


def draw_sweeps(
    data: Data, large: dict[str, tuple[float, ...]], levels: np.ndarray, rate: float
) -> matplotlib.figure.Figure:
    """`levels` are the task's, `rate` the merged escape rate."""
    with styled():
        figure = new_figure(13.2, 7.6)
        (merged, separate, waits), (merged_pairs, separate_pairs, moved) = figure.subplots(2, 3)
        panels = (
            (merged, "merged", levels[[0, -1]], "(a) Merged, independent heads"),
            (separate, "separate", levels, "(b) Separate, independent heads"),
            (merged_pairs, "merged_pairs", levels[[0, -1]], "(d) Merged, heads in pairs of opposite value"),
            (separate_pairs, "separate_pairs", levels, "(e) Separate, heads in pairs of opposite value"),
        )
        for axes, name, shown, title in panels:
            _curves(axes, data[name], shown, large[name.removesuffix("_pairs")] if "pairs" in name else ())
            axes.set_title(title)
        bar = figure.colorbar(
            ScalarMappable(NORM, SHADES),
            ax=[merged, separate, merged_pairs, separate_pairs],
            location="bottom",
            shrink=0.6,
            aspect=45,
            label="standard deviation w of the initial weights",
        )
        bar.set_ticks([10.0**power for power in range(-6, 2)])
        bar.minorticks_off()
        bar.ax.set_xlim(1e-6, 12.0)
        for kind in COLORS:
            _waits(waits, kind, data[kind], data[f"{kind}_pairs"], large[kind][-1], rate)
            _movements(moved, kind, data[kind], data[f"{kind}_pairs"])
        waits.set(xscale="log", yscale="log", xlabel="w", ylabel="time to a tenth of the first fall, $t/\\tau$")
        waits.set_title("(c) Length of the first plateau")
        waits.legend(loc="lower left", fontsize=8)
        moved.set(xscale="log", yscale="log", xlabel="w", ylabel="distance moved / initial size of weights")
        moved.set_title("(f) How far weights move")
        moved.legend(loc="lower left", fontsize=8)
    return figure


def _curves(axes: Axes, runs: xr.Dataset, levels: np.ndarray, linear: tuple[float, ...]) -> None:
    """`linear` are the scales for which the linearized course is drawn."""
    for level in levels:
        axes.axhline(level, color="#B0B0B0", linestyle="--", linewidth=0.8, zorder=0)
    for scale in runs["scale"].values:
        one = runs.sel(scale=scale)
        axes.plot(one["time"].values[1:], one["loss"].values[1:], color=SHADES(NORM(scale)), linewidth=1.7)
        if scale in linear:
            label = "linearized at initialization" if scale == linear[0] else None
            axes.plot(one["time"][1:], one["linearized"][1:], "--", color=BLACK, linewidth=0.9, label=label)
    if linear:
        axes.legend(loc="lower left", fontsize=8)
    axes.set_xscale("log")
    axes.set_ylim(0, HIGHEST["pairs" if linear else "independent"])
    axes.set_xlabel("training time $t/\\tau$")
    axes.set_ylabel("loss (mean squared error)")


def _waits(axes: Axes, kind: str, runs: xr.Dataset, pairs: xr.Dataset, largest: float, rate: float) -> None:
    color = COLORS[kind]
    from_one = np.abs(runs["loss"].isel(point=0).values - 1) < 0.02
    shown = runs.sel(scale=runs["scale"][from_one])
    for seed in range(runs.sizes["seed"]):
        labels = (f"{kind}, independent", f"{kind}, in pairs") if seed == 0 else (None, None)
        axes.plot(shown["scale"], shown["wait"].isel(seed=seed), "o", color=color, markersize=4, label=labels[0])
        style: dict[str, Any] = {"color": color, "markersize": 6, "markerfacecolor": "none", "label": labels[1]}
        axes.plot(pairs["scale"], pairs["wait"].isel(seed=seed), "s", **style)
    # Through the smallest scale, with the slope that theory gives.
    low, small = float(runs["wait"][0, 0]), float(runs["scale"][0])
    reach = np.geomspace(small, 0.3, 60)
    if kind == "merged":
        law, words = low - np.log(reach / small) / rate, "$-\\ln(w)/\\|\\Lambda^2\\|$ + constant"
    else:
        law, words = low * small / reach, "$\\propto 1/w$"
    axes.plot(reach[law > 0.3], law[law > 0.3], "--", color=color, linewidth=1.3, label=words)
    linear, power = float(pairs["lazy_wait"].sel(scale=largest)[0]), -2 if kind == "merged" else -4
    reach = np.geomspace(0.3, largest, 30)
    words = "tangent kernel, $\\propto w^{" + str(power) + "}$"
    axes.plot(reach, linear * (reach / largest) ** power, ":", color=color, linewidth=1.6, label=words)


def _movements(axes: Axes, kind: str, runs: xr.Dataset, pairs: xr.Dataset) -> None:
    color = COLORS[kind]
    shown = runs.sel(scale=runs["scale"] >= 0.3)
    for seed in range(runs.sizes["seed"]):
        labels = (f"{kind}, independent", f"{kind}, in pairs") if seed == 0 else (None, None)
        axes.plot(shown["scale"], shown["moved"].isel(seed=seed), "o", color=color, markersize=4, label=labels[0])
        style: dict[str, Any] = {"color": color, "markersize": 6, "markerfacecolor": "none", "label": labels[1]}
        axes.plot(pairs["scale"], pairs["moved"].isel(seed=seed), "s", **style)
    last, reach = float(pairs["moved"][0, -1]), np.geomspace(0.5, float(pairs["scale"][-1]), 20)
    words = "$\\propto w^{-" + str(FACTORS[kind]) + "}$"
    axes.plot(reach, last * (reach / reach[-1]) ** -FACTORS[kind], ":", color=color, linewidth=1.6, label=words)
