"""The drawing of `sign_pairs`."""

from itertools import cycle
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from stepwell.analysis.style import (
    BLACK,
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    new_figure,
    scientific,
    styled,
)
from stepwell.figures import Data

from ._sign_pairs_settings import Settings


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(15.0, 9.2)
        panels = figure.subplots(2, 3)
        _random(panels[0, 0], data["whole"], data["random"], settings.dim)
        _matrices(panels[0, 1], data["whole"])
        _kernels(panels[0, 2], data["curves"], data["sampled"])
        _courses(panels[1, 0], data)
        _falls(panels[1, 1], data)
        _heads(panels[1, 2], data["heads"])
    return figure


def _random(axes: Axes, whole: xr.Dataset, runs: xr.Dataset, dim: int) -> None:
    calm = whole[["loss"]].coarsen(time=min(5, whole.sizes["time"]), boundary="trim").mean()
    for run in range(whole.sizes["run"]):
        label = "whole matrices, 2 heads, d = 5" if run == 0 else None
        axes.plot(calm["time"], calm["loss"][run], color=PURPLE, linewidth=0.9, alpha=0.8, label=label)
    for heads, color in zip(runs["heads"].values, cycle((VERMILION, ORANGE)), strict=False):
        for run in range(runs.sizes["run"]):
            label = f"eigenvalues, {heads} heads, d = {dim}" if run == 0 else None
            loss = runs["loss"].sel(heads=heads)[run, 1:]
            axes.plot(runs["time"][1:], loss, color=color, linewidth=1.2, label=label)
    for level, style, words in (
        (float(whole["linear"]), PURPLE, "linear attention on centered labels, d = 5"),
        (float(runs["linear"]), VERMILION, f"linear attention on centered labels, d = {dim}"),
        (float(whole["one_head"]), GRAY, "best of one head, d = 5"),
    ):
        axes.axhline(level, color=style, linestyle="--", linewidth=1.1, label=words)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.08, 9)
    axes.set_yticks([0.1, 0.2, 0.5, 1.0], ["0.1", "0.2", "0.5", "1"])
    axes.set_xlim(min(0.3, float(whole["time"][-1]) / 10), float(whole["time"][-1]))
    axes.set_xlabel("time, rate × steps")
    axes.set_ylabel("loss / signal")
    axes.set_title("(a) Softmax attention from random weights")
    axes.legend(loc="upper right", fontsize=8.5)


def _matrices(axes: Axes, whole: xr.Dataset) -> None:
    opposite = np.sign(whole["omega"].values).sum(axis=1) == 0
    shown = whole.isel(run=int(np.argmax(opposite)))
    scores, readout = shown["scores"].values, shown["readout"].values
    heads, width, d = scores.shape
    drawn = np.full((width + 2, heads * (width + 1) - 1), np.nan)
    for head in range(heads):
        left = head * (width + 1)
        drawn[:width, left : left + d] = scores[head] / np.abs(scores).max()
        drawn[width + 1, left : left + width] = readout[head] / np.abs(readout).max()
        words = f"head {head + 1}: ω = {float(shown['omega'][head]):.2f}, μ = {float(shown['mu'][head]):.2f}"
        axes.annotate(words, (left + d / 2, -0.75), ha="center", fontsize=9.5)
    image = axes.imshow(drawn, cmap="RdBu_r", vmin=-1, vmax=1)
    axes.figure.colorbar(image, ax=axes, shrink=0.7)
    axes.set_xticks([])
    axes.set_yticks([d / 2 - 0.5, d, width + 1], ["$W_X$", "$W_Y$", "U"])
    axes.tick_params(length=0)
    axes.set_ylim(width + 1.6, -1.3)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.set_xlabel("input coordinates 1 to 5, and for U the label")
    axes.set_title("(b) Diagonal, alike, last entry only, zero sum")


def _kernels(axes: Axes, curve: xr.Dataset, sampled: xr.Dataset) -> None:
    a = curve["a"]
    axes.plot(a, curve["single"], color=BLUE, label="one head")
    axes.plot(a, curve["single_exact"], "--", color=BLUE, linewidth=1.2, label="one head, exact")
    axes.plot(a, curve["pair"], color=VERMILION, label="sign pair")
    axes.plot(a, curve["linear"], color=GREEN, label="$e^x$ replaced by x")
    axes.plot(a, curve["linear_exact"], "--", color=GREEN, linewidth=1.2, label="linear attention, exact")
    error = 2 * (sampled["error"] ** 2).mean("run") ** 0.5 / sampled.sizes["run"] ** 0.5
    for kind, color, marker in (("pair", VERMILION, "o"), ("linear", GREEN, "s")):
        mean = sampled["mean"].sel(kind=kind).mean("run")
        label = "sampled" if kind == "pair" else None
        axes.errorbar(
            sampled["a"] * (1.1 if kind == "linear" else 1.0),
            mean,
            error.sel(kind=kind),
            fmt=marker,
            color=color,
            markersize=5,
            label=label,
        )
    axes.set_xscale("log")
    axes.set_xlim(0.015, 4)
    axes.set_ylim(0, 0.62)
    axes.set_xlabel("variance of the scores, a = dω²")
    axes.set_ylabel("loss / signal, with the best μ")
    axes.set_title("(c) Two heads of opposite sign are linear attention")
    axes.legend(loc="upper left", bbox_to_anchor=(0.43, 1.0), fontsize=8.5)


def _courses(axes: Axes, data: Data) -> None:
    balanced, left, signed, exact = (data[name] for name in ("balanced", "unbalanced", "signed", "exact"))
    for run in range(balanced.sizes["run"]):
        label = "positive, balanced" if run == 0 else None
        axes.plot(balanced["time"], balanced["loss"][run], color=BLUE, linewidth=1.4, label=label)
    for number, (delta, color) in enumerate(zip(left["delta"].values, (ORANGE, PURPLE, SKY), strict=True)):
        label = f"positive, off balance by {scientific(delta)}"
        axes.plot(left["time"], left["loss"][0, number], color=color, label=label)
    for run in range(signed.sizes["run"]):
        label = "of either sign" if run == 0 else None
        axes.plot(signed["time"], signed["loss"][run], color=VERMILION, linewidth=1.2, label=label)
    for run in range(exact.sizes["run"]):
        label = "softmax attention, off balance by 0.1" if run == 0 else None
        axes.plot(exact["time"], exact["loss"][run], ":", color=BLACK, linewidth=1.6, label=label)
    names = (("limit of the flow", float(data["curves"]["flow"])), ("bound", float(data["curves"]["bound"])))
    for words, level in names:
        axes.axhline(level, color=GRAY, linestyle="--", linewidth=1.0, zorder=0)
        place: dict[str, Any] = {
            "textcoords": "offset points",
            "xytext": (-2, 4 if level > 0.15 else -12),
            "ha": "right",
        }
        axes.annotate(words, (float(left["time"][-1]), level), color="#555555", **place)
    axes.set_xscale("log")
    axes.set_xlim(min(0.05, float(left["time"][-1]) / 10), float(left["time"][-1]))
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("time, rate × steps")
    axes.set_ylabel("loss / signal")
    axes.set_title("(d) Two heads trained on one task")
    axes.legend(loc="upper right", fontsize=8.5)


def _falls(axes: Axes, data: Data) -> None:
    signed, left, laws = data["signed"], data["unbalanced"], data["laws"]
    bound = float(data["curves"]["bound"])
    for run in range(signed.sizes["run"]):
        label = "of either sign" if run == 0 else None
        axes.plot(signed["time"], signed["loss"][run] - bound, color=VERMILION, linewidth=1.4, label=label)
    for number, (delta, color) in enumerate(zip(left["delta"].values, (ORANGE, PURPLE, SKY), strict=True)):
        label = f"positive, off balance by {scientific(delta)}"
        axes.plot(left["time"], left["loss"][0, number] - bound, color=color, linewidth=1.4, label=label)
    for kind, style, words in (
        ("signed", "--", "law, at last $t^{-4/5}$"),
        ("unbalanced", ":", "law, at last $t^{-2/3}$"),
    ):
        law, a = laws.sel(kind=kind), np.geomspace(2e-3, 0.2, 60)
        omega, power = (a / float(law["unit"])) ** 0.5, 1 + 2 * float(law["order"])
        grown = omega**-power + float(law["inertia"]) * power / (power - 2) * omega ** (2 - power)
        time = grown / float(law["growth"])
        gamma = float(law["gamma"])
        excess = gamma / (1 + gamma) ** 2 * float(law["factor"]) * a ** float(law["order"])
        axes.plot(time, excess, style, color=BLACK, linewidth=1.4, label=words)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(0.5, float(signed["time"][-1]) / 10), float(signed["time"][-1]))
    axes.set_ylim(1e-5, 1)
    axes.set_xlabel("time, rate × steps")
    axes.set_ylabel("loss / signal, above the bound")
    axes.set_title("(e) The bound is neared as a power of time")
    axes.legend(loc="lower left", fontsize=8.5)


def _heads(axes: Axes, searched: xr.Dataset) -> None:
    heads = searched["heads"]
    axes.plot(heads, searched["bound"], color=VERMILION, label="bound")
    axes.plot(heads, searched["partition"], color=BLUE, label="tasks divided among heads")
    for run in range(searched.sizes["run"]):
        labels = ("searched, either sign", "searched, not negative") if run == 0 else (None, None)
        axes.plot(
            heads, searched["signed"][:, run], "o", color=VERMILION, fillstyle="none", markersize=8, label=labels[0]
        )
        axes.plot(heads, searched["positive"][:, run], "s", color=BLUE, fillstyle="none", markersize=8, label=labels[1])
    wanted = int(searched.attrs["tasks"]) + 1
    axes.plot(wanted, float(searched["contrast"]), "*", color=BLACK, markersize=9, label="contrasts of I + 1 heads")
    axes.set_xticks(heads)
    axes.set_ylim(0, None)
    axes.set_xlabel("heads H")
    axes.set_ylabel("least loss / signal")
    axes.set_title(f"(f) I + 1 heads suffice for I = {wanted - 1} tasks")
    axes.legend(loc="upper right", fontsize=8.5)
