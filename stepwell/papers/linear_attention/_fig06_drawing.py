"""Fig 6, drawn: losses of all scales, waits against the scale, and lazy decays."""

from typing import Any

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, BLUE, VERMILION, new_figure, styled

COLOURS = {"merged": BLUE, "separate": VERMILION}


def draw_sweeps(
    data: dict[str, xr.Dataset],
    lazy: dict[str, tuple[float, ...]],
    levels: np.ndarray,
    rate: float,
) -> Figure:
    """`levels` are the task's, `rate` the merged escape rate."""
    with styled():
        figure = new_figure(10.5, 8.0)
        (first, second), (waits, decays) = figure.subplots(2, 2)
        _curves(first, data["merged"], levels[[0, -1]])
        first.set_title("(a) Merged: one wait, one drop")
        _curves(second, data["separate"], levels)
        second.set_title("(b) Separate: waits at the levels between")
        for kind, runs in data.items():
            _waits(waits, kind, runs, lazy[kind], rate)
            _decays(decays, kind, runs, lazy[kind], float(levels[-1]))
        waits.set_xscale("log")
        waits.set_yscale("log")
        waits.set_xlabel("initial weights, standard deviation w")
        waits.set_ylabel("time to a tenth of the first fall, $t/\\tau$")
        waits.set_title("(c) Length of the first plateau")
        waits.legend(loc="lower left")
        decays.set_xscale("log")
        decays.set_yscale("log")
        decays.set_xlim(3e-2, 1e2)
        decays.set_ylim(1e-2, 1.2)
        decays.set_xlabel("time, over half the fall's in linearised training")
        decays.set_ylabel("excess loss $L - L(M_D)$")
        decays.set_title("(d) Lazy: the decay predicted at the start")
        decays.legend(loc="lower left")
    return figure


def _curves(axes: Axes, runs: xr.Dataset, levels: np.ndarray) -> None:
    scales = runs["scale"].values
    shades = matplotlib.colormaps["plasma"](np.linspace(0.0, 0.88, scales.size))
    for scale, shade in zip(scales, shades, strict=True):
        one = runs.sel(scale=scale)
        axes.plot(one["time"].values[1:], one["loss"].values[1:], color=shade, linewidth=1.6, label=f"{scale:g}")
    for level in levels:
        axes.axhline(level, color="#B0B0B0", linestyle="--", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(float(runs["wait"].min()) / 10, float(runs["time"].max()))
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("training time $t/\\tau$")
    axes.set_ylabel("loss (mean squared error)")
    axes.legend(title="w", loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, handlelength=1.2)


def _waits(axes: Axes, kind: str, runs: xr.Dataset, lazy: tuple[float, ...], rate: float) -> None:
    colour = COLOURS[kind]
    for seed in range(runs.sizes["seed"]):
        label = f"{kind}, measured" if seed == 0 else None
        axes.plot(runs["scale"], runs["wait"].isel(seed=seed), "o", color=colour, markersize=4, label=label)
    one = runs.isel(seed=0)
    # Through the smallest scale, with the slope that theory gives.
    low, small = float(one["wait"].isel(scale=0)), float(one["scale"][0])
    reach = np.geomspace(small, 0.3, 60)
    if kind == "merged":
        law, words = low - np.log(reach / small) / rate, "$-\\ln(w)/\\|\\Lambda^2\\|$ + constant"
    else:
        law, words = low * small / reach, "$\\propto 1/w$"
    shown = law > 0.3
    axes.plot(reach[shown], law[shown], "--", color=colour, linewidth=1.3, label=words)
    linear = one["lazy_wait"].sel(scale=lazy[-1])
    power = -2 if kind == "merged" else -4
    reach = np.geomspace(0.3, lazy[-1], 30)
    words = "tangent kernel, $\\propto w^{" + str(power) + "}$"
    axes.plot(reach, float(linear) * (reach / lazy[-1]) ** power, ":", color=colour, linewidth=1.6, label=words)


def _decays(axes: Axes, kind: str, runs: xr.Dataset, lazy: tuple[float, ...], last: float) -> None:
    """One scale at which the kernel is constant, and one at which it is not."""
    for scale, width in ((lazy[0], 4.0), (0.3, 1.4)):
        one = runs.sel(scale=scale)
        linear = one["linearised"].values - last
        times = one["time"].values / np.interp(-linear[0] / 2, -linear, one["time"].values)
        label = f"{kind}, w = {scale:g}" + (" (lazy)" if scale in lazy else "")
        style: dict[str, Any] = {"color": COLOURS[kind], "alpha": 0.5 if scale in lazy else 1.0, "linewidth": width}
        axes.plot(times, one["loss"].values - last, label=label, **style)
        if scale in lazy:
            words = "linearised at the start" if kind == "merged" else None
            axes.plot(times, linear, "--", color=BLACK, linewidth=1.1, label=words, zorder=3)
