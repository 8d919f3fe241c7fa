"""The drawing of the allocation of heads."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, PALETTE, VERMILION, new_figure, styled

_COLOURS = {3: BLUE, 2: VERMILION, 1: GREEN}
_WORDS = {3: "a head for each task", 2: "two tasks in one head", 1: "three tasks in one head"}
_TIME = "time t = rate × step"


def draw(data: dict[str, xr.Dataset]) -> Figure:
    with styled():
        figure = new_figure(11.0, 7.6)
        panels = figure.subplots(2, 2)
        _courses(panels[0, 0], data["starts"])
        _winners(panels[0, 1], data["starts"])
        _sharing(panels[1, 0], data["sharing"])
        _imbalance(panels[1, 1], data["imbalance"])
    return figure


def _courses(axes: Any, trained: xr.Dataset) -> None:
    time, used = trained["time"].values, trained["heads_used"].values
    for heads, colour in _COLOURS.items():
        chosen = np.flatnonzero(used == heads)
        label = f"{_WORDS[heads]}: {chosen.size} of {used.size} starts"
        axes.plot([], [], color=colour, label=label)
        for run in chosen[:25]:
            axes.plot(time, trained["loss"].values[run], color=colour, linewidth=0.7, alpha=0.6)
        if chosen.size:
            cost = float(trained["cost"].values[chosen[0]])
            axes.axhline(cost, color=BLACK, linestyle="--", linewidth=0.9)
            axes.annotate(
                f"{cost:.2f}", (20.0, cost), xytext=(-2, 3), textcoords="offset points", ha="right", fontsize=9
            )
    axes.set_xlim(0, 20)
    axes.set_ylim(0, 32)
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss, summed over tasks")
    axes.set_title("(a) Random starts end in three kinds of states")
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.97))


def _winners(axes: Any, trained: xr.Dataset) -> None:
    right = (trained["head"] == trained["predicted"]).values
    contested, equal = trained["contested"].values, trained["equal_mu"].values[:, None]
    places, names = [], []
    for place, (kind, word) in enumerate(((equal, "equal μ"), (~equal, "random μ"))):
        for step, (chosen, name) in enumerate(
            ((~contested, "alone with\nits head"), (contested, "contending\nfor it"))
        ):
            among = kind & chosen
            number, got = int(among.sum()), int((right & among).sum())
            spot = 2.6 * place + step
            axes.bar(spot, got / number, width=0.8, color=(BLUE, PALETTE[5])[step])
            axes.annotate(
                f"{got}/{number}", (spot, got / number), xytext=(0, 3), textcoords="offset points", ha="center"
            )
            places.append(spot)
            names.append(f"{name}\n({word})")
    axes.set_xticks(places, names, fontsize=9)
    axes.set_ylim(0, 1.12)
    axes.set_ylabel("tasks won by the predicted head")
    axes.set_title("(b) The initial weights decide, but for contention")


def _sharing(axes: Any, trained: xr.Dataset) -> None:
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.plot(trained["x"], trained["predicted_rate"], color=BLACK, linewidth=1.3, label="theory")
    axes.plot(trained["x"], trained["rate"], "o", color=BLUE, markersize=5, fillstyle="none", label="trained")
    threshold = float(trained["threshold"])
    axes.axvline(threshold, color=GREY, linestyle=":", linewidth=1.2)
    axes.annotate(f"x = {threshold:.3f}", (threshold, -0.85), xytext=(5, 0), textcoords="offset points")
    split = np.abs(trained["end_loss"].values - float(trained["split"])) < 0.1
    for kind, marker, colour in ((~split, "v", VERMILION), (split, "^", GREEN)):
        level = float(trained["split"] if marker == "^" else trained["shared"])
        word = "splits" if marker == "^" else "stays shared"
        ends = trained["end"].values[kind]
        axes.plot(
            ends, np.full(ends.size, -1.25), marker, color=colour, label=f"end of a long run: {word}, loss {level:.4f}"
        )
    axes.set_ylim(-1.4, 1.6)
    axes.set_xlabel("x, ω of the second head over the first's")
    axes.set_ylabel("growth rate of the second head's μ")
    axes.set_title("(c) Two tasks in one head: a second head revives or dies")
    axes.legend(loc="upper left", fontsize=8.5)


def _imbalance(axes: Any, trained: xr.Dataset) -> None:
    time = trained["time"].values
    for row, part in enumerate(trained["part"].values):
        label = (
            "balanced, o = v"
            if part == 0
            else f"v/o = {(1 + part) ** 2:g}"
            if part > 1e-3
            else f"v/o = 1 + {2 * part:.0e}"
        )
        colour = BLACK if part == 0 else PALETTE[row - 1]
        axes.plot(time[1:], trained["loss"].values[row, 1:], color=colour, label=label)
    for level, word in (
        (float(trained["limit"]), "limit of the flow"),
        (float(trained["bound"]), "bound for three heads"),
    ):
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1.0)
        axes.annotate(f"{word}, {level:.2f}", (2.2, level), xytext=(0, -12), textcoords="offset points", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(2, float(time[-1]))
    axes.set_ylim(3, 12)
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss, summed over tasks")
    axes.set_title("(d) An imbalance undoes the limit")
    axes.legend(loc="upper right")
