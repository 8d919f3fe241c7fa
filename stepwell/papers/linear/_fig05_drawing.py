"""Fig 5, drawn: losses of softmax attention, merged and separate, and merged from a smaller initialization."""

from typing import Any

import matplotlib.figure
import xarray as xr
from matplotlib.axes import Axes

from stepwell.analysis import Drop
from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.figures import Data


def draw_runs(data: Data, counted: dict[str, list[list[Drop]]], small_init: str) -> matplotlib.figure.Figure:
    """`counted` are the drops of each run of each kind of training."""
    titles = {"merged": "(a) Merged", "separate": "(b) Separate, rank one"}
    titles["small"] = f"(c) Merged, from init {small_init}"
    levels, powers = data["theory"]["linear_levels"].values, data["theory"]["power"].values
    with styled():
        figure = new_figure(12.6, 4.6)
        merged, separate, small = figure.subplots(1, 3, sharey=True, width_ratios=(2, 3, 1.7))
        for axes, name in ((merged, "merged"), (separate, "separate")):
            shown = enumerate(levels) if name == "separate" else [(0, levels[0]), (len(levels) - 1, levels[-1])]
            for m, level in shown:
                axes.axhline(level / levels[0], color=GRAY, linestyle="--", linewidth=1.0, zorder=0)
                place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
                words = f"$L(M_{m})$"
                axes.annotate(words, (1.0, level / levels[0]), xytext=(3, 0), va="center", fontsize=8.5, **place)
        separate.plot([], [], "o", color="white", markeredgecolor=BLACK, markersize=5, label="middle of a drop")
        separate.plot([], [], "--", color=GRAY, linewidth=1.0, label="levels of linear attention")
        separate.legend(loc="upper right", bbox_to_anchor=(1.0, 0.97))
        for run in range(data["small"].sizes["run"]):
            end = float(data["one_head"]["loss"][run, -1]) / powers[run]
            label = "end of one head trained alone" if run == 0 else None
            small.axhline(end, color=PALETTE[run % 6], linestyle=":", linewidth=1.4, label=label)
        small.legend(loc="upper right", bbox_to_anchor=(1.0, 0.97))
        for axes, name in ((merged, "merged"), (separate, "separate"), (small, "small")):
            for run, listed in enumerate(counted[name]):
                _curve(axes, data[name], run, powers[run], listed)
            axes.set_title(f"{titles[name]}: {_number([len(listed) for listed in counted[name]])}")
            axes.set_xlabel("training time $t/\\tau$")
            axes.set_xlim(0, float(data[name]["time"][-1]))
        merged.set_ylabel("training loss / loss of predicting zero")
        merged.set_ylim(0, 1.05)
    return figure


def _curve(axes: Axes, trajectory: xr.Dataset, run: int, power: float, drops: list[Drop]) -> None:
    color = PALETTE[run % len(PALETTE)]
    axes.plot(trajectory["time"].values, trajectory["loss"].values[run] / power, color=color, linewidth=1.6)
    for drop in drops:
        height = (drop.before + drop.after) / 2 / power
        axes.plot([drop.time], [height], "o", color=color, markersize=5, markeredgecolor=BLACK)


def _number(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    number = f"{low}" if low == high else f"{low} to {high}"
    return f"{number} drop" + ("s" if high > 1 else "")
