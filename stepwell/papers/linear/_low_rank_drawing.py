"""Figs 4 and 12, drawn: above the loss as published, below how long each plateau lasts, and how often one is short."""

from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.figures import Data

from ._low_rank import verdicts, waits
from ._low_rank_settings import DIM, Settings

LIGHT = "#B0B0B0"
SHADE = "#E3EAF2"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    predicted, ranks = data["theory"], settings.ranks
    with styled():
        figure = new_figure(13.2, 7.6)
        halves: Any = figure.subfigures(2, 1, height_ratios=(3, 2.2))
        upper, lower = halves
        above = upper.subplots(1, len(ranks), sharey=True, squeeze=False)[0]
        *below, last = lower.subplots(1, len(ranks) + 1, width_ratios=[*(len(ranks) * [1.0]), 1.15])
        for place, rank in enumerate(ranks):
            _losses(above[place], rank, data["published"].sel(rank=rank), predicted["level"].values, settings.steps)
            times = data["drops"]["drop_time"].sel(rank=rank).values
            each, fresh = waits(times, predicted["escape_rate"].values), settings.fresh(rank)
            _waits(below[place], rank, each, predicted.sel(rank=rank), fresh)
        for axes in below[1:]:
            axes.set_yticklabels([])
        above[0].set_ylabel("loss (mean squared error)")
        below[0].set_ylabel("wait $\\rho_m T_m$")
        _fractions(last, data, settings)
        handles, words = below[0].get_legend_handles_labels()
        more, others = below[-1].get_legend_handles_labels()
        unseen = [(handle, word) for handle, word in zip(more, others, strict=True) if word not in words]
        handles, words = [*handles, *(h for h, _ in unseen)], [*words, *(w for _, w in unseen)]
        lower.legend(handles, words, loc="outside lower left", ncols=3, fontsize=8.5)
    return figure


def _losses(axes: Axes, rank: int, runs: xr.Dataset, levels: Float[np.ndarray, " component"], steps: int) -> None:
    for m, level in enumerate(levels):
        waiting = m % rank == 0 and m < DIM
        style: dict[str, Any] = {"color": BLACK, "linewidth": 1.1} if waiting else {"color": LIGHT, "linewidth": 0.8}
        axes.axhline(level, linestyle="--", zorder=0, **style)
        if waiting or m == DIM:
            words = f"$m={m}$" if waiting else "end"
            place: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False, "va": "center"}
            axes.annotate(words, (steps, level), xytext=(3, 0 if waiting else -3), fontsize=7.5, **place)
    for run, loss in enumerate(runs["loss"].values):
        axes.plot(runs["step"].values, loss, color=PALETTE[run % len(PALETTE)], linewidth=1.5)
    axes.set_xlim(0, steps)
    axes.set_ylim(0.15, 1.04)
    ticks = (0, steps // 2, steps)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel("training step")
    axes.set_title(f"R = {rank}")


def _waits(
    axes: Axes, rank: int, each: Float[np.ndarray, "run plateau"], predicted: xr.Dataset, fresh: np.ndarray
) -> None:
    low, middle, high = np.quantile(predicted["fresh_wait"].values, (0.1, 0.5, 0.9), axis=0)
    pairs = predicted["pair_wait"].values
    spread = np.linspace(-0.28, 0.28, len(each)) if len(each) > 1 else np.zeros(1)
    for m in range(DIM):
        if fresh[m]:
            axes.axvspan(m - 0.5, m + 0.5, color=SHADE, zorder=0, linewidth=0, label="R divides m" if m == 0 else None)
            words = "predicted, a fresh head: median and 80 % of random initializations" if m == 0 else None
            span = [[middle[m] - low[m]], [high[m] - middle[m]]]
            axes.errorbar([m], [middle[m]], yerr=span, fmt="_", color=VERMILION, markersize=14, zorder=3, label=words)
        else:
            words = "predicted, a further pair" if m == rank - 1 else None
            axes.plot([m], [pairs[m]], "_", color=BLACK, markersize=14, markeredgewidth=1.5, zorder=3, label=words)
        words = f"simulated, {len(each)} seeds" if m == 0 else None
        axes.plot(m + spread, np.sort(each[:, m]), "o", color=BLUE, markersize=2.4, zorder=2, label=words)
    limit = float(predicted["threshold"].sel(scale=1.0, method="nearest"))
    axes.axhline(limit, color=GRAY, linestyle="--", linewidth=1.2, zorder=1, label="conspicuous from here")
    axes.set_yscale("log")
    axes.set_ylim(0.2, 400)
    axes.set_xlim(-0.5, DIM - 0.5)
    axes.set_xticks(range(DIM))
    axes.set_xlabel("components learned, $m$")
    axes.set_title(f"R = {rank}", fontsize=9.5)


def _fractions(axes: Axes, data: Data, settings: Settings) -> None:
    simulated, _, count = verdicts(data, settings)
    smaller, rank = data["smaller"], settings.ranks[0]
    theory = data["theory"].sel(rank=rank)
    axes.plot(settings.init * theory["scale"], 100 * theory["wrong"], color=VERMILION, label="predicted")
    errors = 100 * np.sqrt(np.maximum(simulated * (1 - simulated), 0.5 / count) / count)
    inits = settings.init / 10.0 ** smaller["decade"].values
    axes.errorbar(inits, 100 * simulated, yerr=errors, fmt="o", color=BLUE, markersize=4, label="simulated")
    axes.set_xscale("log")
    axes.set_ylim(0, None)
    axes.set_xlabel("init")
    axes.set_ylabel("short though R divides m (%)")
    axes.set_title(f"R = {rank}: smaller starts", fontsize=9.5)
    axes.legend(loc="upper left", fontsize=8)
