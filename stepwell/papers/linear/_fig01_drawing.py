"""Fig 1: the drawing."""

from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PALETTE, SKY, VERMILION, new_figure, scientific, styled
from stepwell.figures import Data

from ._fig01_settings import ROUNDING, Settings
from ._onset import measured_onsets, off_by
from ._published import from_dataset

_QUIET = "#555555"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(10.8, 7.6)
        rows: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
        _draw_losses(rows[0].subplots(), data)
        onset, apart, white = rows[1].subplots(1, 3, width_ratios=(1, 1.15, 1.15))
        _draw_onsets(onset, data)
        _draw_differences(apart, data)
        _draw_white(white, data["white"])
    return figure


def _draw_losses(axes: Any, data: Data) -> None:
    training, mlp, predicted = data["training"], data["mlp"], data["theory"]
    curve = from_dataset(data["published"], "fig1_attnM")
    seeds = training.sizes["run"]
    for run in range(seeds):
        label = f"ATTN_M, {seeds} seeds of ours" if run == 0 else None
        axes.plot(training["step"], training["loss"][run], color=SKY, linewidth=0.8, label=label, zorder=1)
    axes.plot(training["step"], training["loss"][0], color=BLUE, linewidth=1.6, label="ATTN_M, the first of them")
    few = mlp.isel(step=slice(None, None, 12))
    label = "MLP(z), data and start of the first"
    axes.plot(few["step"], few["loss"][0], "o", color=BLUE, markerfacecolor="white", markersize=4.2, label=label)
    axes.plot(
        curve[:, 0], curve[:, 1], "--", color=VERMILION, linewidth=2.0, label="the paper's curve (ATTN_M and MLP(z))"
    )
    last = float(predicted["last_level"][0])
    axes.axhline(last, color=GRAY, linestyle=":", linewidth=1.4, zorder=0)
    end = float(training["step"][-1])
    axes.annotate(f"predicted final loss $L(M_D)$ = {last:.3f}", (end, last), xytext=(-4, 7), ha="right",
                  textcoords="offset points", color=_QUIET, fontsize=9)  # fmt: skip
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.15)
    axes.set_xlabel("training step")
    axes.set_ylabel("training loss (mean squared error)")
    axes.set_title("(a) As published: one curve, one drop")
    axes.legend(loc="upper right")


def _draw_onsets(axes: Any, data: Data) -> None:
    """Of each seed, measured over predicted step: a drop by the D + 1 equations, an onset by the data's own modes."""
    training, expected = data["training"], data["onset"]
    losses = training["loss"].values
    halfway = [passage_time(training["time"].values, loss, (loss[0] + loss[-1]) / 2) for loss in losses]
    own = measured_onsets(training, expected) / expected["step"].values
    for place, (ratio, color, marker) in enumerate(
        (
            (halfway / expected["infinite_drop"].where(expected["infinite_drop"] > 0).values, GRAY, "o"),
            (own, VERMILION, "D"),
        )
    ):
        spread = np.linspace(-0.28, 0.28, ratio.size)
        axes.plot(place + spread, ratio, marker, color=color, markersize=3.6, linestyle="none")
    axes.axhline(1.0, color=BLACK, linewidth=0.8, zorder=0)
    how = {"xytext": (0, 14), "textcoords": "offset points", "ha": "center", "fontsize": 8.5, "color": VERMILION}
    axes.annotate(off_by(own).replace(" at", "\nat"), (1, 1), **how)
    axes.set_xticks([0, 1], ["half of the drop,\nfrom infinite data", "its beginning,\nfrom own data"])
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylim(0.85, 1.15)
    axes.set_ylabel("measured over predicted time")
    axes.set_title("(b) When the loss falls")


def _draw_differences(axes: Any, data: Data) -> None:
    training, held, mlp, population, predicted = (
        data[key] for key in ("training", "held", "mlp", "population", "theory")
    )
    end = float(training["time"][-1])
    curves = (
        (training["time"], training["loss"][0] - held["loss"][0], GREEN, "label blocks free, from held"),
        (
            predicted["time"],
            population["loss"][0] - predicted["loss"][0],
            BLACK,
            "infinite data, from D + 1 equations",
        ),
        (held["time"], held["loss"][0] - mlp["loss"][0], BLUE, "label blocks held, from MLP(z)"),
    )
    after = 1.25 * float(predicted["drop_time"][0])
    for times, difference, color, label in curves:
        # A difference of exactly zero is drawn at the smallest step of float64.
        sizes = np.maximum(np.abs(np.asarray(difference)), np.finfo(float).eps / 2)
        axes.semilogy(times, sizes, color=color, linewidth=1.3)
        later = sizes[np.asarray(times) > after]
        height = (later if later.size else sizes).max()
        axes.annotate(label, (end, height), xytext=(0, 5), ha="right", color=color,
                      textcoords="offset points", fontsize=8.5)  # fmt: skip
    axes.axhline(ROUNDING, color=GRAY, linestyle=":", linewidth=1.4)
    axes.annotate("tolerance of held blocks", (end, ROUNDING), xytext=(0, -11), ha="right", color=_QUIET,
                  textcoords="offset points", fontsize=8.5)  # fmt: skip
    axes.set_ylim(3e-17, 3e1)
    axes.set_yticks([1e-15, 1e-10, 1e-5, 1e0])
    axes.set_xlim(0, end)
    axes.set_ylabel("difference of two losses")
    axes.set_xlabel("training time $t/\\tau$")
    axes.set_title("(c) How far apart curves are, first seed")


def _draw_white(axes: Any, white: xr.Dataset) -> None:
    for place, size in enumerate(white["size"].values):
        one = white.sel(size=size)
        color = PALETTE[place % len(PALETTE)]
        for run in range(min(one.sizes["run"], 3)):
            label = f"weights of size {scientific(size)}" if run == 0 else None
            axes.plot(one["clock"], one["measured"][run], color=color, linewidth=2.2, alpha=0.5, label=label)
            known = "eq. 10" if place == white.sizes["size"] - 1 and run == 0 else None
            axes.plot(one["clock"], one["predicted"][run], ":", color=BLACK, linewidth=1.2, label=known)
    axes.axhline(float(white["end"]), color=GRAY, linewidth=0.8, zorder=0)
    axes.set_xlim(0, float(white["clock"].max()))
    axes.set_ylim(0, 1.55 * float(white["end"]))
    axes.set_yticks([0, 0.25, 0.5, 0.75])
    axes.set_xlabel("training time $t/\\tau$")
    axes.set_ylabel("coefficient $\\sigma(t)$ of the prediction")
    axes.set_title("(d) White inputs: the paper's eq. 10")
    axes.legend(loc="upper left", fontsize=8.5)
