"""Fig 11, drawn: above a run in which heads and pairs grow in turn, below the two laws of their growth."""

from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.figures import Data
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

from ._fig11_heads import RANK

GROWN = 0.3
"""A head is colored if its value comes to be larger."""


def draw_figure(data: Data, task: InContextRegression) -> matplotlib.figure.Figure:
    """`task` is that of Fig 4."""
    head, pair, waited, predictions = (data[key] for key in ("new_head", "new_pair", "waits", "theory"))
    with styled():
        figure = new_figure(11.5, 8.4)
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
        loss, weights = halves[0].subplots(2, 1, sharex=True, height_ratios=(1, 1.1))
        _draw_run(loss, weights, data["run"], theory.levels(task))
        left, middle, right = halves[1].subplots(1, 3)
        _draw_head(left, head, float(predictions["driving"]))
        _draw_pair(middle, pair, float(predictions["driving"]) * float(predictions["value"]))
        _draw_waits(right, waited, predictions)
    return figure


def _draw_run(loss: Axes, weights: Axes, run: xr.Dataset, levels: np.ndarray) -> None:
    step, snapshot = run["step"].values, run["snapshot"].values
    for m, level in enumerate(levels):
        style: dict[str, Any] = {"color": BLACK if m % RANK == 0 else "#B0B0B0", "linewidth": 0.9}
        loss.axhline(level, linestyle="--", zorder=0, **style)
    loss.plot(step, run["loss"], color=BLACK, linewidth=1.8)
    loss.set_ylabel("loss")
    loss.set_ylim(0.15, 1.05)
    loss.set_title(f"(a) A run of Fig 4, R = {RANK}; dashed: predicted levels, black where R divides m")
    grown = np.flatnonzero(run["value"].values[-1] > GROWN).tolist()
    for i in range(run.sizes["head"]):
        color = PALETTE[grown.index(i) % len(PALETTE)] if i in grown else "#B0B0B0"
        weights.plot(snapshot, run["value"][:, i], color=color, linewidth=2.6, alpha=0.6)
        for r in range(run.sizes["pair"]):
            style = {"linewidth": 1.3, "linestyle": "--" if r == 0 else ":"}
            weights.plot(snapshot, run["pair"][:, i, r], color=color, **style)
    lines = [
        Line2D([], [], color=GRAY, linewidth=2.6, alpha=0.6, label="value $|v_i|$"),
        Line2D([], [], color=GRAY, linewidth=1.3, linestyle="--", label="first pair"),
        Line2D([], [], color=GRAY, linewidth=1.3, linestyle=":", label="second pair"),
    ]
    weights.legend(handles=lines, loc="center left", bbox_to_anchor=(1.0, 0.5))
    weights.set(xlabel="training step", ylabel="size of weights", xlim=(0, step[-1]))


def _draw_head(axes: Axes, head: xr.Dataset, rate: float) -> None:
    for i in range(head.sizes["run"]):
        time = head["time"].values[i] - head["time"].values[i, 0]
        axes.plot(time, 1 / head["size"].values[i], color=PALETTE[i % 6], linewidth=3.0, alpha=0.5)
    if head.sizes["run"]:
        time = np.array([0.0, np.ptp(head["time"].values, axis=1).min()])
        line = 1 / head["size"].values[0, 0] - rate * time
        axes.plot(time, line, "--", color=BLACK, linewidth=1.1, label="theory: slope $-\\lambda_2^2$")
    axes.plot([], [], color=GRAY, linewidth=3.0, alpha=0.5, label=_seeds(head))
    axes.set(xlabel="time $t/\\tau$ from the first point", ylabel="$1/v$ of the new head")
    axes.set_title("(b) New head: hyperbolic")
    axes.legend(loc="upper right")


def _draw_pair(axes: Axes, pair: xr.Dataset, rate: float) -> None:
    for i in range(pair.sizes["run"]):
        time = pair["time"].values[i] - pair["time"].values[i, 0]
        axes.semilogy(time, pair["size"].values[i], color=PALETTE[i % 6], linewidth=3.0, alpha=0.5)
        label = "theory: slope $v\\lambda_2^2$" if i == 0 else None
        line = pair["size"].values[i, 0] * np.exp(rate * time)
        axes.plot(time, line, "--", color=BLACK, linewidth=1.1, label=label)
    axes.plot([], [], color=GRAY, linewidth=3.0, alpha=0.5, label=_seeds(pair))
    axes.set(xlabel="time $t/\\tau$ from the first point", ylabel="size $u$ of the new pair (logarithmic)")
    axes.set_title("(c) New pair in a grown head: exponential")
    axes.legend(loc="lower right")


def _seeds(runs: xr.Dataset) -> str:
    count = runs.sizes["run"]
    return f"simulated, {count} seed" + ("" if count == 1 else "s")


def _draw_waits(axes: Axes, waited: xr.Dataset, predictions: xr.Dataset) -> None:
    rate, value = float(predictions["driving"]), float(predictions["value"])
    small = waited["size"].values
    fine = np.geomspace(small.min() / 2, small.max() * 2, 50)
    # Half of the component: v u² is half of its end, less where the gain is counted.
    half = ((1 - 0.5**0.5) * float(predictions["map_end"]) / value) ** 0.5
    laws = (
        ("head", 1 / (rate * fine), VERMILION, "new head", "$1/(\\lambda_2^2 s)$"),
        ("pair", np.log(half / fine) / (value * rate), BLUE, "new pair", "$\\ln(u/s)/(v\\lambda_2^2)$"),
    )
    for kind, law, color, words, formula in laws:
        axes.loglog(fine, law, "--", color=color, linewidth=1.2, label=f"theory: {formula}")
        axes.plot(small, waited[kind], "o", color=color, markersize=6, label=f"{words}, simulated")
    axes.set(xlabel="initial size $s$", ylabel="wait on the plateau $t/\\tau$")
    axes.invert_xaxis()
    axes.legend(loc="upper left", fontsize=8)
    axes.set_title("(d) How long the plateau lasts")
