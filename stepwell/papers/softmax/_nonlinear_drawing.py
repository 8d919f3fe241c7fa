"""The drawing of `nonlinear`."""

from typing import Any

import matplotlib.figure
import numpy as np

from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.figures import Data


def draw(data: Data, settings: Any) -> matplotlib.figure.Figure:
    losses, along = data["losses"], data["overlaps"]
    names = losses["target"].values.tolist()  # the last is the constant, whose loss hardly depends on the sample
    with styled():
        figure = new_figure(13.6, 4.8)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.1, 1.1, 0.9))
        shown = int(losses["dim"][losses.sizes["dim"] // 2])
        one = losses.sel(dim=shown)
        places = np.arange(len(names))
        for name, label, look in (
            ("leading", "leading order in d", {"marker": "_", "color": PALETTE[0], "markersize": 20}),
            ("first_order", "first order in 1/L", {"marker": "x", "color": BLACK, "markersize": 9}),
            ("mean", "sampled contexts", {"marker": "o", "color": PALETTE[1], "markersize": 4.5}),
        ):
            values = one[name].mean("run") if name == "mean" else one[name]
            left.plot(places, values / one["power"], linestyle="", label=label, **look)
        left.axhline(1, color=GRAY, linestyle="--", linewidth=1.0)
        left.text(4, 1.08, "answering zero", ha="center", color="#555555", fontsize=9)
        left.set_yscale("log")
        left.set_ylim(0.07, 90)
        left.set_ylabel("loss / power of the target")
        left.set_title(f"(a) Losses, d = {shown}")
        left.legend(loc="upper left")

        for number, dim in enumerate(losses["dim"].values):
            at = losses.sel(dim=dim)
            ratio = at["mean"].mean("run") / at["first_order"]
            error = 2 * np.sqrt((at["error"] ** 2).mean("run") / at.sizes["run"]) / at["first_order"]
            color = PALETTE[number % len(PALETTE)]
            style: dict[str, Any] = {"fmt": "o", "color": color, "markersize": 4.5, "label": f"d = {dim}"}
            middle.errorbar(places[:-1] + 0.2 * (number - 1), ratio[:-1], error[:-1], **style)
        middle.axhline(1, color=GRAY, linewidth=1.0)
        middle.set_ylabel("sampled / first order, ± 2 standard errors")
        middle.set_title("(b) Sampled over predicted")
        middle.legend(loc="best")
        left.set_xticks(places, names, rotation=35, ha="right")
        middle.set_xticks(places[:-1], names[:-1], rotation=35, ha="right")

        dims = along["dim"].values
        for k, color in zip(along["degree"].values, PALETTE, strict=False):
            row = along.sel(degree=k)
            error = 2 * np.sqrt((row["error"] ** 2).mean("run") / row.sizes["run"])
            right.errorbar(dims, row["mean"].mean("run"), error, fmt="o", color=color, markersize=5)
            label = f"degree {k}: " + ("1" if k == 1 else f"$d^{{-{(k - 1) / 2:g}}}$")
            right.plot(dims, dims ** (-(k - 1) / 2), color=color, linewidth=1.2, label=label)
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xticks(dims, [str(d) for d in dims])
        right.minorticks_off()
        right.set_xlabel("dimension d")
        right.set_ylabel("overlap of prediction and target / c")
        right.set_title("(c) How each degree enters")
        right.legend(loc="lower left")
    return figure
