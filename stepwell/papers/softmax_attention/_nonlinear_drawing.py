"""The drawing of `nonlinear`."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, GREY, PALETTE, new_figure, styled


def drawing(data: dict[str, xr.Dataset]) -> Figure:
    losses, along = data["losses"], data["overlaps"]
    names = losses["target"].values.tolist()
    with styled():
        figure = new_figure(13.6, 4.8)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.1, 1.1, 0.9))
        one = losses.sel(dim=50)
        places = np.arange(len(names))
        left.bar(places, one["leading"] / one["power"], color=PALETTE[5], alpha=0.6, label="leading order in d")
        left.plot(places, one["first_order"] / one["power"], "x", color=BLACK, markersize=9, label="first order in 1/L")
        left.plot(places, one["mean"].mean("run") / one["power"], "o", color=PALETTE[1], markersize=4.5, label="drawn")
        left.axhline(1, color=GREY, linestyle="--", linewidth=1.0)
        left.set_yscale("log")
        left.set_ylim(0.07, 90)
        left.set_ylabel("loss / power of the target")
        left.set_title("(a) Losses, d = 50")
        left.legend(loc="upper left")

        for number, dim in enumerate(losses["dim"].values):
            at = losses.sel(dim=dim)
            ratio = at["mean"].mean("run") / at["first_order"]
            error = 2 * np.sqrt((at["error"] ** 2).mean("run") / at.sizes["run"]) / at["first_order"]
            style: dict[str, Any] = {"fmt": "o", "color": PALETTE[number], "markersize": 4.5, "label": f"d = {dim}"}
            middle.errorbar(places + 0.2 * (number - 1), ratio, error, **style)
        middle.axhline(1, color=GREY, linewidth=1.0)
        middle.set_ylabel("drawn / first order, ± 2 standard errors")
        middle.set_title("(b) Agreement")
        middle.legend(loc="best")
        for axes in (left, middle):
            axes.set_xticks(places, names, rotation=35, ha="right")

        dims = along["dim"].values
        for k, colour in zip(along["degree"].values, PALETTE, strict=False):
            row = along.sel(degree=k)
            error = 2 * np.sqrt((row["error"] ** 2).mean("run") / row.sizes["run"])
            right.errorbar(dims, row["mean"].mean("run"), error, fmt="o", color=colour, markersize=5)
            label = f"degree {k}: " + ("1" if k == 1 else f"$d^{{-{(k - 1) / 2:g}}}$")
            right.plot(dims, dims ** (-(k - 1) / 2), color=colour, linewidth=1.2, label=label)
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xticks(dims, [str(d) for d in dims])
        right.minorticks_off()
        right.set_xlabel("dimension d")
        right.set_ylabel("overlap of answer and target / c")
        right.set_title("(c) How each degree enters")
        right.legend(loc="lower left")
    return figure
