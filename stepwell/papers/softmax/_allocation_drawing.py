"""The drawing of the allocation of heads."""

from itertools import cycle
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PALETTE, VERMILION, new_figure, scientific, styled
from stepwell.figures import Data

from ._allocation_settings import MARGIN, Settings, number_word, shared_words

_TIME = "time t = rate × step"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(15.0, 8.6)
        panels = figure.subplots(2, 3)
        equal, starts, signal = data["equal"], data["starts"], float(data["equal"].attrs["signal"])
        levels = {int(used): float(level) for used, level in zip(equal["used"], equal["level"], strict=True)}
        _courses(panels[0, 0], equal, levels, signal, "(a) Softmax attention: random starts")
        _winners(panels[0, 1], (equal, data["unequal"], starts))
        _converged(panels[0, 2], data["unequal"])
        costs = dict(zip(starts["heads_used"].values.tolist(), starts["cost"].values.tolist(), strict=True))
        _courses(panels[1, 0], starts, costs, signal, "(d) The surrogate: random starts")
        _sharing(panels[1, 1], data["sharing"])
        _imbalance(panels[1, 2], data["imbalance"], settings)
    return figure


def _courses(axes: Any, trained: xr.Dataset, levels: dict[int, float], signal: float, title: str) -> None:
    time, used, tasks = trained["time"].values, trained["heads_used"].values, trained.sizes["task"]
    for heads, color in zip(range(tasks, 0, -1), cycle((BLUE, VERMILION, GREEN)), strict=False):
        chosen = np.flatnonzero(used == heads)
        axes.plot([], [], color=color, label=f"{shared_words(heads, tasks)}: {chosen.size} of {used.size} starts")
        for run in chosen[:25]:
            axes.plot(time, trained["loss"].values[run], color=color, linewidth=0.7, alpha=0.6)
    for level in levels.values():
        axes.axhline(level, color=BLACK, linestyle="--", linewidth=0.9)
        axes.annotate(f"{level:.2f}", (0.0, level), xytext=(3, 3), textcoords="offset points", fontsize=9)
    axes.set_xlim(0, min(24, float(time[-1])))
    axes.set_ylim(0, 1.3 * signal)
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss, summed over tasks")
    axes.set_title(title)
    axes.legend(loc="upper right")


def _winners(axes: Any, sets: tuple[xr.Dataset, ...]) -> None:
    colors = (BLUE, PALETTE[5], PALETTE[1])
    words = ("named for it alone, leads clearly", "named for it alone, leads by little", "named for several tasks")
    for place, runs in enumerate(sets):
        right = (runs["served_by"] == runs["predicted"]).values
        contested, clear = runs["contested"].values, runs["lead"].values > MARGIN
        for step, among in enumerate((~contested & clear, ~contested & ~clear, contested)):
            number, got = int(among.sum()), int((right & among).sum())
            if number == 0:
                continue
            spot = 3.6 * place + step
            axes.bar(spot, got / number, width=0.85, color=colors[step])
            axes.annotate(
                f"{got}\nof {number}",
                (spot, got / number),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
            )
    for color, word in zip(colors, words, strict=True):
        axes.bar([0], [0], color=color, label=word)
    named = [f"softmax\n{runs.sizes['head']} heads" for runs in sets[:2]]
    axes.set_xticks([1, 3.6, 8.2], [*named, "surrogate"])
    axes.set_ylim(0, 1.62)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel("tasks learned by the head that theory names")
    axes.set_title("(b) The initial weights decide, but for contention")
    axes.legend(loc="upper left", title="the head is", fontsize=8.5, title_fontsize=8.5)


def _converged(axes: Any, runs: xr.Dataset) -> None:
    for run in range(runs.sizes["run"]):
        label = f"softmax attention, {runs.sizes['run']} starts" if run == 0 else None
        axes.plot(runs["time"], runs["loss"][run], color=BLUE, linewidth=0.9, alpha=0.8, label=label)
    mean = float(runs["tested"].mean())
    axes.plot(
        float(runs["time"][-1]), mean, "o", color=BLACK, label="mean at the end, on fresh sequences", clip_on=False
    )
    level, limit = float(runs["level"]), float(runs["limit"])
    axes.axhline(level, color=BLACK, linestyle="--", linewidth=1.1, label=f"least loss by quadrature, {level:.2f}")
    axes.axhline(limit, color=GRAY, linestyle=":", linewidth=1.4, label=f"limit of the surrogate, {limit:.2f}")
    axes.set_xlim(0, float(runs["time"][-1]))
    axes.set_ylim(0, 36)
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss, summed over tasks")
    axes.set_title("(c) Softmax attention: 4 heads, 3 unequal noisy tasks")
    axes.legend(loc="upper right")


def _sharing(axes: Any, trained: xr.Dataset) -> None:
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.plot(trained["x"], trained["predicted_rate"], color=BLACK, linewidth=1.3, label="theory")
    axes.plot(trained["x"], trained["rate"], "o", color=BLUE, markersize=5, fillstyle="none", label="trained")
    threshold = float(trained["threshold"])
    axes.axvline(threshold, ymax=0.77, color=GRAY, linestyle=":", linewidth=1.2)
    axes.annotate(f"x = {threshold:.3f}", (threshold, -0.85), xytext=(5, 0), textcoords="offset points")
    split = np.abs(trained["end_loss"].values - float(trained["split"])) < 0.1
    for kind, marker, color in ((~split, "v", VERMILION), (split, "^", GREEN)):
        level = float(trained["split"] if marker == "^" else trained["shared"])
        word = "splits" if marker == "^" else "stays shared"
        ends = trained["end"].values[kind]
        axes.plot(
            ends, np.full(ends.size, -1.25), marker, color=color, label=f"end of a long run: {word}, loss {level:.2f}"
        )
    axes.set_ylim(-1.4, 1.9)
    axes.set_xlabel("x, ω of the second head over the first's")
    axes.set_ylabel("growth rate of the second head's μ")
    axes.set_title("(e) The surrogate: two tasks in one head, and a second")
    axes.legend(loc="upper left", fontsize=8.5)


def _imbalance(axes: Any, trained: xr.Dataset, settings: Settings) -> None:
    time = trained["time"].values
    first = min(2.0, float(time[-1]) / 10)
    for row, part in enumerate(trained["part"].values):
        label = (
            "balanced, o = v"
            if part == 0
            else f"v/o = {(1 + part) ** 2:g}"
            if part > 1e-3
            else f"v/o = 1 + {scientific(2 * part)}"
        )
        color = BLACK if part == 0 else PALETTE[row - 1]
        axes.plot(time[1:], trained["loss"].values[row, 1:], color=color, label=label)
    for level, word in (
        (float(trained["limit"]), "limit of the flow"),
        (float(trained["bound"]), f"bound for {number_word(settings.tasks)} heads"),
    ):
        axes.axhline(level, color=GRAY, linestyle="--", linewidth=1.0)
        below: dict[str, Any] = {"xytext": (0, -12), "textcoords": "offset points", "fontsize": 9}
        axes.annotate(f"{word}, {level:.2f}", (1.1 * first, level), **below)
    axes.set_xscale("log")
    axes.set_xlim(first, float(time[-1]))
    axes.set_ylim(0.1 * sum(settings.dims), 0.4 * sum(settings.dims))
    axes.set_xlabel(_TIME)
    axes.set_ylabel("loss, summed over tasks")
    axes.set_title("(f) The surrogate: an imbalance undoes the limit")
    axes.legend(loc="upper right")
