"""The drawing of `fig05_baselines`."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, PURPLE, VERMILION, new_figure, styled


def drawing(data: dict[str, xr.Dataset]) -> Figure:
    curve, drawn, sample, single = (data[name] for name in ("curves", "drawn", "sampled", "trained"))
    ratio = drawn["dim"] / drawn.attrs["context"]
    lines = {
        "ridge_0.05": (VERMILION, "-", "ridge, penalty 0.05"),
        "ridge_5": (PURPLE, "-", "ridge, penalty 5"),
        "bayes": (GREY, "-", "Bayes risk"),
        "flow": (BLACK, "--", "softmax, a head a task (flow)"),
        "single": (BLUE, "--", "softmax, best single head"),
    }
    with styled():
        figure = new_figure(11.2, 4.6)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for name, (colour, dashes, label) in lines.items():
            left.plot(curve["ratio"], curve[name], dashes, color=colour, label=label)
            if name in drawn["risk"]:
                one = drawn.sel(risk=name).mean("run")
                left.plot(ratio, one["mean"], "o", color=colour, markersize=5)
                left.plot(ratio, one["regressed"], "x", color=colour, markersize=8)
        left.plot(sample["dim"] / sample["context"], sample["mean"].mean("run"), "D", color=BLACK, markersize=4.5)
        left.plot(single["ratio"], single["loss"].mean("run"), "s", color=BLUE, markersize=5)
        for marker, label in (
            ("o", f"contexts drawn, L = {drawn.attrs['context']}"),
            ("x", "regressions carried out"),
            ("D", "softmax, sampled, finite d and L"),
            ("s", "single head trained"),
        ):
            left.plot([], [], marker, color=GREY, markersize=5, label=label)
        left.set_xscale("log")
        left.set_xlim(0.01, 5)
        left.set_ylim(0, 2.1)
        left.set_xlabel("dimension of a task over context, d/L")
        left.set_ylabel("risk of a task / its signal")
        left.set_title(f"(a) In-context learners, I = {drawn.attrs['tasks']} tasks, φ = 2")
        left.legend(loc="upper left", fontsize=8.5)

        finite_sizes = data["finite"]
        colours = (GREEN, VERMILION, BLUE)
        for context, colour in zip(finite_sizes["context"].values, colours, strict=True):
            row = finite_sizes["over_leading"].sel(context=context).dropna("dim")
            right.plot(row["dim"] / context, row, color=colour, label=f"L = {context}")
            at = np.flatnonzero(sample["context"] == context)
            if at.size:
                one = sample.isel(size=at)
                over = one["mean"].mean("run") / one["leading"]
                spread = one["error"].mean("run") / one["leading"] / one.sizes["run"] ** 0.5
                right.errorbar(one["dim"] / context, over, 2 * spread, fmt="D", color=colour, markersize=4.5)
        right.axhline(1, color=GREY, linewidth=1.0)
        right.set_xscale("log")
        right.set_xlim(0.01, 5)
        right.set_xlabel("dimension of a task over context, d/L")
        right.set_ylabel("exact loss / leading order")
        right.set_title("(b) Limit of the flow at finite sizes")
        right.plot([], [], "D", color=GREY, markersize=4.5, label="sampled, ± 2 standard errors")
        right.legend(loc="upper right")
    return figure
