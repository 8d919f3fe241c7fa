"""Figs 4 and 12, drawn: above the loss of every seed, below how long each plateau lasts."""

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, BLUE, GREY, PALETTE, VERMILION, new_figure, styled

from ._low_rank import DIM, scaled_durations, scaled_waits


def draw_ranks(ranks: tuple[int, ...], data: dict[str, xr.Dataset]) -> Figure:
    predicted = data["theory"]
    end = max(float(data[f"rank{rank}"]["time"][-1]) for rank in ranks)
    with styled():
        figure = new_figure(3.1 * len(ranks) + 0.8, 7.4)
        above, below = figure.subplots(2, len(ranks), sharey="row", height_ratios=(3, 2.4))
        for place, rank in enumerate(ranks):
            run = data[f"rank{rank}"]
            _losses(above[place], rank, run, predicted["level"].values, end)
            scheduled = scaled_waits(data["schedule"]["drop_time"].sel(rank=rank).values, predicted)
            _waits(below[place], rank, scaled_durations(run, predicted), scheduled, predicted)
        above[0].set_ylabel("loss (mean squared error)")
        below[0].set_ylabel("length of the plateau, $\\rho_m T_m$")
        _laws(below[-1], predicted)
        handles, words = below[0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower center", ncols=3)
    return figure


def _losses(axes: Axes, rank: int, run: xr.Dataset, levels: Float[np.ndarray, " component"], end: float) -> None:
    for m, level in enumerate(levels):
        waits = m % rank == 0 and m < DIM
        style: dict[str, Any] = {"color": BLACK, "linewidth": 1.2} if waits else {"color": "#B0B0B0", "linewidth": 0.8}
        axes.axhline(level, linestyle="--", zorder=0, **style)
        if waits or m == DIM:
            words = f"$m={m}$" if waits else "end"
            place: dict[str, Any] = {"xytext": (4, -3), "textcoords": "offset points", "annotation_clip": False}
            axes.annotate(words, (end, level), fontsize=8.5, **place)
    for loss, colour in zip(run["loss"].values, PALETTE, strict=False):
        # A run that has come to its end stays there.
        axes.plot([*run["time"].values[1:], end], [*loss[1:], loss[-1]], color=colour, linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(50, end)
    axes.set_ylim(0.19, 1.06)
    axes.set_yticks([0.2, 0.3, 0.4, 0.6, 0.8, 1.0], ["0.2", "0.3", "0.4", "0.6", "0.8", "1"])
    axes.minorticks_off()
    axes.set_xlabel("training time $t/\\tau$")
    axes.set_title(f"R = {rank}")


def _waits(
    axes: Axes,
    rank: int,
    durations: Float[np.ndarray, "run plateau"],
    expected_waits: Float[np.ndarray, "run plateau"],
    predicted: xr.Dataset,
) -> None:
    place = np.arange(DIM)
    for m in place[place % rank == 0]:
        label = "R divides m" if m == 0 else None
        axes.axvspan(m - 0.5, m + 0.5, color="#E3EAF2", zorder=0, linewidth=0, label=label)
    spread = np.linspace(-0.25, 0.25, len(durations)) if len(durations) > 1 else [0.0]
    for run, shift in enumerate(spread):
        measured, scheduled = ("measured, each seed", "schedule from its initial weights, drop to drop")
        if run > 0:
            measured = scheduled = None
        style: dict[str, Any] = {"color": VERMILION, "markersize": 7, "markeredgewidth": 1.5}
        axes.plot(place + shift, durations[run], "o", color=BLUE, markersize=3.6, zorder=2, label=measured)
        axes.plot(place + shift, expected_waits[run], "_", zorder=3, label=scheduled, **style)
    axes.axhline(float(predicted["conspicuous_from"]), color=BLACK, linewidth=1.2, zorder=1)
    for law in ("fresh_head", "further_pair"):
        axes.axhline(float(predicted[law]), color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    axes.set_yscale("log")
    axes.set_ylim(0.03, 150)
    axes.set_xlim(-0.5, DIM - 0.5)
    axes.set_xticks(place)
    axes.set_xlabel("components learned, $m$")


def _laws(axes: Axes, predicted: xr.Dataset) -> None:
    """Names of the three lines, beside the last panel."""
    lines = (
        ("fresh_head", "a fresh head:\n$1/s$"),
        ("conspicuous_from", "conspicuous\nfrom here"),
        ("further_pair", "a further pair:\n$\\ln(1/s)/v$"),
    )
    for name, words in lines:
        place: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(words, (DIM - 0.5, float(predicted[name])), va="center", fontsize=8.5, **place)
