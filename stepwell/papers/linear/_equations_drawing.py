"""What the figure of the paper's equations draws."""

from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, ORANGE, PALETTE, VERMILION, new_figure, styled
from stepwell.figures import Data
from stepwell.tasks import InContextRegression

from ._drawing import lines
from ._equations_written import equation_twenty
from ._runs import EIGENVALUES

PARTS = ("value", "key", "query")


def draw(data: Data, task: InContextRegression, rounding: float) -> matplotlib.figure.Figure:
    """`rounding`: what differences of predictions may come to by rounding."""
    with styled():
        figure = new_figure(13.0, 6.6)
        above, below = figure.subplots(2, 4)
        _draw_gradient(above[0], data["gradients"], "merged", "(a) Eq. 8: merged flow")
        _draw_gradient(above[1], data["gradients"], "separate", "(b) Eq. 14: separate flow")
        _draw_moments(above[2], data["moments"])
        _draw_forms(above[3], data["pairs"], data["maps"], rounding)
        _draw_trained(below[0], data["trained"])
        _draw_heads(below[1], data["heads"], task)
        _draw_white(below[2], data["white"])
        _draw_drops(below[3], data["lengths"])
    return figure


def _diagonal(axes: Axes, values: Any) -> None:
    edges = np.nanmin(values), np.nanmax(values)
    axes.plot(edges, edges, color=GRAY, linewidth=1.0, zorder=0)


def _draw_gradient(axes: Axes, each: xr.Dataset, kind: str, title: str) -> None:
    _diagonal(axes, each[f"{kind}_autodiff"].values)
    style: Any = {"linestyle": "none", "fillstyle": "none"}
    for side, color, marker, words in (
        ("sequences", BLUE, "o", "given sequences"),
        ("infinite", VERMILION, "x", "infinitely many"),
    ):
        by_autodiff, written = (
            each[f"{kind}_{name}"].sel(data=side).values.ravel() for name in ("autodiff", "written")
        )
        axes.plot(by_autodiff, written, marker, color=color, markersize=4, label=words, **style)
    axes.set(xlabel="−½ gradient, by autodiff", ylabel="as written", title=title)
    axes.legend(loc="upper left", fontsize=8)


def _draw_moments(axes: Axes, moments: xr.Dataset) -> None:
    _diagonal(axes, moments["predicted"].values)
    for place, (color, marker) in enumerate(zip((BLUE, VERMILION, GREEN), "osv", strict=True)):
        one = moments.isel(length=place)
        label = f"N = {int(one['length'])}"
        style: Any = {"color": color, "markersize": 5, "fillstyle": "none", "linestyle": "none"}
        axes.plot(one["predicted"], one["measured"], marker, label=label, **style)
    axes.set(
        xlabel="by equation 15",
        ylabel="mean over sampled contexts",
        title="(c) Eq. 15: entries of $E[\\hat\\Lambda^2]$",
    )
    axes.legend(loc="upper left", fontsize=8)


def _draw_forms(axes: Axes, pairs: xr.Dataset, maps: xr.Dataset, rounding: float) -> None:
    floor = rounding / 1000  # for differences that are zero
    style: Any = {"linestyle": "none", "fillstyle": "none", "markersize": 5}
    lines(
        axes,
        maps["heads"],
        np.maximum(maps["separate"].values.T, floor),
        "o",
        label="H heads, random map",
        color=BLUE,
        **style,
    )
    rank = np.maximum(pairs["apart"].values.T, floor)
    lines(axes, pairs["rank"], rank, "x", label="R pairs a head, shared value", color=VERMILION, **style)
    axes.axhline(rounding, color=GRAY, linestyle=":", linewidth=1.0)
    axes.set(
        yscale="log",
        xlabel="heads H, or pairs R",
        ylabel="difference / largest prediction",
        title="(d) Heads of rank one",
    )
    axes.set_xticks(maps["heads"].values)
    axes.legend(loc="center left", fontsize=8)


def _draw_trained(axes: Axes, trained: xr.Dataset) -> None:
    wanted = trained["map"].sel(kind="regression").values.ravel()
    _diagonal(axes, wanted)
    for kind, color, marker, size in (("merged", BLUE, "o", 6), ("separate", VERMILION, "x", 4)):
        style: Any = {"color": color, "markersize": size, "fillstyle": "none", "linestyle": "none"}
        axes.plot(wanted, trained["map"].sel(kind=kind).values.ravel(), marker, label=kind, **style)
    axes.set(xlabel="regression on z, same sequences", ylabel="after training", title="(e) Entries of the final map")
    axes.legend(loc="upper left", fontsize=8)


def _draw_heads(axes: Axes, heads: xr.Dataset, task: InContextRegression) -> None:
    sizes, learned = heads["size"].values, axes.inset_axes((0.35, 0.7, 0.4, 0.18))
    style: Any = {"linestyle": "none", "fillstyle": "none"}
    for component, (end, color) in enumerate(zip(equation_twenty(task), PALETTE, strict=False)):
        one = heads.isel(component=component)
        for part, marker in zip(PARTS, "o+x", strict=True):
            lines(axes, sizes, one[part].values.T, marker, color=color, markersize=5, **style)
            steady = one[part].isel(size=int(sizes.argmin())).values
            learned.plot(np.full(steady.size, component + 1), steady, marker, color=color, markersize=4, **style)
        learned.plot(component + 1 + np.array([-0.4, 0.4]), [end, end], color=color, linewidth=1.0)
    rows = heads["spare"].transpose("seed", "head", "size").values.reshape(-1, sizes.size)
    lines(axes, sizes, rows, ".", color=BLACK, markersize=4, linestyle="none", label="spare heads")
    axes.plot(sizes, 3 * sizes, "--", color=GRAY, linewidth=1.0, label="slope 1")
    axes.set(xscale="log", yscale="log", xlabel="initial size", ylabel="final |v|, |k|, |q|", title="(f) Eq. 20: heads")
    axes.set(ylim=(None, 3e3))  # room for the inset
    learned.set(xticks=range(1, heads.sizes["component"] + 1))
    learned.set_title("learned, m =", fontsize=7)
    learned.tick_params(labelsize=7)
    axes.legend(loc="lower right", fontsize=8)


def _draw_white(axes: Axes, white: xr.Dataset) -> None:
    for place, color in zip(range(white.sizes["size"]), (BLUE, VERMILION, GREEN, ORANGE), strict=False):
        one = white.isel(size=place)
        style: Any = {"color": color, "alpha": 0.5, "linewidth": 3.0}
        lines(axes, one["clock"], one["measured"].values, label=f"w = {float(one['size']):g}", **style)
        label = None if place else "eq. 10"
        lines(axes, one["clock"], one["predicted"].values, "--", color=BLACK, linewidth=0.9, label=label)
    axes.set(xlabel="training time $t/\\tau$", ylabel="loss / initial loss", title="(g) Eq. 10: loss, white inputs")
    axes.set(ylim=(0, None))
    axes.legend(loc="upper right", fontsize=8)


def _draw_drops(axes: Axes, lengths: xr.Dataset) -> None:
    tokens = lengths["length"].values
    for place, (eigenvalue, color) in enumerate(zip(np.sort(EIGENVALUES)[::-1], PALETTE, strict=False)):
        lacking = 1 - lengths["fall"].isel(component=place).transpose("seed", "length").values / eigenvalue
        label = f"drop {place + 1}, λ = {eigenvalue:g}"
        lines(axes, tokens, lacking, "o", color=color, fillstyle="none", markersize=5, linestyle="none", label=label)
        axes.plot(tokens, (1 + sum(EIGENVALUES) / eigenvalue) / tokens, color=color, linewidth=1.0)
    axes.set(xscale="log", yscale="log", xlabel="context length N", ylabel="1 − drop / λ", title="(h) Long contexts")
    axes.legend(loc="lower left", fontsize=7)
