"""The drawing of Fig 5."""

from typing import Any

import matplotlib.figure
import xarray as xr

from stepwell.analysis.style import BLACK, BLUE, GRAY, PURPLE, VERMILION, new_figure, styled
from stepwell.figures import Data


def draw(data: Data, settings: object) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(11.6, 4.9)
        left, right = figure.subplots(1, 2, width_ratios=(2.1, 1))
        _learners(left, data)
        _gain(right, data["gain_curve"], data["gain"])
    return figure


def _learners(axes: Any, data: Data) -> None:
    curve, drawn, trained, gains = (data[name] for name in ("curves", "drawn", "softmax", "gain"))
    ratio = drawn["dim"] / drawn.attrs["context"]
    lines = {
        "ridge_0.05": (VERMILION, "-", "ridge, penalty 0.05"),
        "ridge_5": (PURPLE, "-", "ridge, penalty 5"),
        "bayes": (GRAY, "-", "Bayes risk"),
        "flow": (BLACK, "--", "softmax, a head a task (flow)"),
        "single": (BLUE, "--", "softmax, best single head"),
    }
    for name, (color, dashes, label) in lines.items():
        axes.plot(curve["ratio"], curve[name], dashes, color=color, label=label)
        if name in drawn["risk"]:
            one = drawn.sel(risk=name).mean("run")
            axes.plot(ratio, one["mean"], "o", color=color, markersize=5, clip_on=False)
            axes.plot(ratio, one["regressed"], "x", color=color, markersize=8, clip_on=False)
    several = trained["risk"].sel(convention="total")
    axes.plot(trained["dim"] / trained.attrs["context"], several, "D", color=BLACK, markersize=5, clip_on=False)
    shown = (gains["dim"] / gains["context"]).values >= 0.01
    style: dict[str, Any] = {"color": BLUE, "markersize": 5, "clip_on": False}
    axes.plot((gains["dim"] / gains["context"])[shown], gains["single"][shown], "s", **style)
    for marker, label in (
        ("o", f"contexts drawn, L = {drawn.attrs['context']}"),
        ("x", "regressions carried out"),
        ("D", f"softmax trained, a head a task, L = {trained.attrs['context']}"),
        ("s", f"softmax trained, single head, d = {int(gains['dim'][0])}"),
    ):
        axes.plot([], [], marker, color=GRAY, markersize=5, label=label)
    axes.set_xscale("log")
    axes.set_xlim(0.01, 5)
    axes.set_ylim(0, 2.1)
    axes.set_xlabel("dimension of a task over context, d/L")
    axes.set_ylabel("risk of a task / its signal")
    axes.set_title(f"(a) In-context learners, I = {drawn.attrs['tasks']} tasks, φ = 2")
    axes.legend(loc="upper left", fontsize=8.5)


def _gain(axes: Any, curve: xr.Dataset, gains: xr.Dataset) -> None:
    axes.axhline(10, color=GRAY, linewidth=1.0)
    axes.annotate("I = 10", (2.0, 10), xytext=(0, 3), textcoords="offset points", color="#555555", ha="right")
    axes.plot(curve["ratio"], curve["gain"], "--", color=BLACK, label="closed form")
    gain = gains["single"] / gains["several"]
    label = f"softmax, trained, d = {int(gains['dim'][0])}"
    axes.plot(gains["dim"] / gains["context"], gain, "o", color=VERMILION, markersize=6, label=label)
    axes.set_xscale("log")
    axes.set_ylim(0, 11.5)
    axes.set_xlabel("dimension of a task over context, d/L")
    axes.set_ylabel("loss of a single head / loss of a head a task")
    axes.set_title("(b) Gain of several heads")
    axes.legend(loc="lower left")
