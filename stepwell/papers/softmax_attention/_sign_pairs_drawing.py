"""The drawing of `sign_pairs`."""

from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure, styled


def drawing(data: dict[str, xr.Dataset]) -> Figure:
    with styled():
        figure = new_figure(13.6, 4.7)
        panels = figure.subplots(1, 3, width_ratios=(1.1, 1.2, 0.9))
        _kernels(panels[0], data["curves"], data["sampled"])
        _courses(panels[1], data)
        _heads(panels[2], data["heads"])
    return figure


def _kernels(axes: Axes, curve: xr.Dataset, sampled: xr.Dataset) -> None:
    a = curve["a"]
    axes.plot(a, curve["single"], color=BLUE, label="one head")
    axes.plot(a, curve["single_exact"], "--", color=BLUE, linewidth=1.2, label="one head, exact")
    axes.plot(a, curve["pair"], color=VERMILION, label="sign pair")
    axes.plot(a, curve["linear"], color=GREEN, label="$e^x$ replaced by x")
    axes.plot(a, curve["linear_exact"], "--", color=GREEN, linewidth=1.2, label="linear attention, exact")
    error = 2 * (sampled["error"] ** 2).mean("run") ** 0.5 / sampled.sizes["run"] ** 0.5
    for kind, colour, marker in (("pair", VERMILION, "o"), ("linear", GREEN, "s")):
        mean = sampled["mean"].sel(kind=kind).mean("run")
        label = "sampled" if kind == "pair" else None
        axes.errorbar(
            sampled["a"] * (1.1 if kind == "linear" else 1.0),
            mean,
            error.sel(kind=kind),
            fmt=marker,
            color=colour,
            markersize=5,
            label=label,
        )
    axes.set_xscale("log")
    axes.set_xlim(0.015, 4)
    axes.set_ylim(0, 0.62)
    axes.set_xlabel("variance of the scores, a = dω²")
    axes.set_ylabel("loss / signal, with the best μ")
    axes.set_title("(a) Two heads of opposite sign are linear attention")
    axes.legend(loc="upper left", bbox_to_anchor=(0.43, 1.0), fontsize=8.5)


def _courses(axes: Axes, data: dict[str, xr.Dataset]) -> None:
    balanced, left, signed, exact = (data[name] for name in ("balanced", "unbalanced", "signed", "exact"))
    for run in range(balanced.sizes["run"]):
        label = "positive, balanced" if run == 0 else None
        axes.plot(balanced["time"], balanced["loss"][run], color=BLUE, linewidth=1.4, label=label)
    for number, (delta, colour) in enumerate(zip(left["delta"].values, (ORANGE, PURPLE, SKY), strict=True)):
        axes.plot(left["time"], left["loss"][0, number], color=colour, label=f"positive, off balance by {delta:g}")
    for run in range(signed.sizes["run"]):
        label = "of either sign" if run == 0 else None
        axes.plot(signed["time"], signed["loss"][run], color=VERMILION, linewidth=1.2, label=label)
    axes.plot(exact["time"], exact["loss"], ":", color=BLACK, linewidth=1.8, label="off balance by 0.1, exact softmax")
    names = (("limit of the flow", float(data["curves"]["flow"])), ("bound", float(data["curves"]["bound"])))
    for words, level in names:
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1.0, zorder=0)
        place: dict[str, Any] = {
            "textcoords": "offset points",
            "xytext": (-2, 4 if level > 0.15 else -12),
            "ha": "right",
        }
        axes.annotate(words, (float(left["time"][-1]), level), color="#555555", **place)
    axes.set_xscale("log")
    axes.set_xlim(0.05, float(left["time"][-1]))
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("time, rate × steps")
    axes.set_ylabel("loss / signal")
    axes.set_title("(b) Two heads trained on one task")
    axes.legend(loc="upper right", fontsize=8.5)


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
    axes.set_title(f"(c) I + 1 heads suffice for I = {wanted - 1} tasks")
    axes.legend(loc="upper right", fontsize=8.5)
