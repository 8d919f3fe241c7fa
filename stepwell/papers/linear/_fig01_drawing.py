"""Fig 1: the drawing, with the scheme of attention as a network."""

from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PALETTE, SKY, VERMILION, new_figure, scientific, styled
from stepwell.figures import Data

from ._drawing import lines, note
from ._onset import measured_onsets, off_by
from ._published import from_dataset

_QUIET = "#555555"
_ATTENTION = "$\\mathrm{ATTN}_M$"


def draw(data: Data, rounding: float) -> matplotlib.figure.Figure:
    """`rounding`: what two routes to one loss may differ by."""
    with styled():
        figure = new_figure(11.2, 7.8)
        rows: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
        scheme, losses = rows[0].subplots(1, 2, width_ratios=(1, 1.9))
        _draw_scheme(scheme)
        _draw_losses(losses, data)
        onset, apart, white = rows[1].subplots(1, 3, width_ratios=(1, 1.15, 1.15))
        _draw_onsets(onset, data)
        _draw_differences(apart, data, rounding)
        _draw_white(white, data["white"])
    return figure


def _draw_scheme(axes: Any) -> None:
    """Attention through its tokens, and the same prediction as a network of two layers on the cubic features."""
    axes.set(xlim=(0, 10), ylim=(-1.6, 10.2))
    axes.axis("off")
    axes.set_title(f"(a) {_ATTENTION} is a network")
    for column, name in enumerate(("$x_1$", "$x_2$", "…", "$x_N$", "$x_q$")):
        query = name == "$x_q$"
        color = VERMILION if query else BLUE
        for bottom, height, word in ((8.1, 1.2, name), (7.1, 0.9, "0" if query else name.replace("x", "y"))):
            style = {"facecolor": color + "28", "edgecolor": color, "linewidth": 1.2}
            axes.add_patch(Rectangle((1.6 + 1.4 * column, bottom), 1.2, height, **style))
            axes.text(2.2 + 1.4 * column, bottom + height / 2, word, ha="center", va="center", fontsize=9.5)
    axes.text(5.1, 9.5, "tokens $X$", ha="center", va="bottom", fontsize=9.5)
    _arrow(axes, (5.1, 7.0), (5.1, 6.15))
    axes.text(
        5.1,
        5.65,
        r"$z = \mathrm{vec}(\beta x_q^\top)$,   $\beta = \frac{1}{N}\sum_n y_n x_n$",
        ha="center",
        va="center",
    )
    layers = ((4.6, np.linspace(1.4, 8.8, 6), BLUE), (2.4, np.linspace(2.6, 7.6, 4), GREEN), (0.4, [5.1], BLACK))
    for (low, below, _), (high, above, _) in zip(layers[1:], layers[:-1], strict=True):
        for x in above:
            for other in below:
                axes.plot([x, other], [high, low], color=GRAY, linewidth=0.6, zorder=0)
    for height, places, color in layers:
        for x in places:
            axes.add_patch(Circle((x, height), 0.26, facecolor="white", edgecolor=color, linewidth=1.4))
    axes.text(9.2, 3.6, "$W_1$", ha="left", va="center", color=GREEN)
    axes.text(9.2, 3.0, "rows: heads,\nvec $U_h$", ha="left", va="top", fontsize=8, color=_QUIET)
    axes.text(7.4, 1.2, "$w_2$: the values $v_h$", ha="left", va="center", fontsize=9.5)
    axes.text(5.1, -0.75, r"$\hat y_q = w_2^\top W_1 z$", ha="center", va="center")


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=GRAY, linewidth=1.1))


def _draw_losses(axes: Any, data: Data) -> None:
    training, mlp, predicted = data["training"], data["mlp"], data["theory"]
    curve = from_dataset(data["published"], "fig1_attnM")
    label = f"{_ATTENTION}, {training.sizes['run']} seeds of ours"
    lines(axes, training["step"], training["loss"].values, color=SKY, linewidth=0.8, label=label, zorder=1)
    axes.plot(
        training["step"], training["loss"][0], color=BLUE, linewidth=1.6, label=f"{_ATTENTION}, the first of them"
    )
    few, label = mlp.isel(step=slice(None, None, 12)), "MLP(z), data and initialization of the first"
    axes.plot(few["step"], few["loss"][0], "o", color=BLUE, markerfacecolor="white", markersize=4.2, label=label)
    axes.plot(*curve.T, "--", color=VERMILION, linewidth=2.0, label=f"the paper's curve ({_ATTENTION} and MLP(z))")
    last, end = float(predicted["last_level"][0]), float(training["step"][-1])
    axes.axhline(last, color=GRAY, linestyle=":", linewidth=1.4, zorder=0)
    words = f"predicted final loss $L(M_D)$ = {last:.3f}"
    note(axes, words, (end, last), (-4, 7), ha="right", color=_QUIET, fontsize=9)
    axes.set(xlim=(0, end), ylim=(0, 1.15), xlabel="training step", ylabel="training loss (mean squared error)")
    axes.set_title("(b) As published: one curve, one drop")
    axes.legend(loc="upper right")


def _draw_onsets(axes: Any, data: Data) -> None:
    training, expected = data["training"], data["onset"]
    losses, drop = training["loss"].values, expected["infinite_drop"]
    halfway = [passage_time(training["time"].values, loss, (loss[0] + loss[-1]) / 2) for loss in losses]
    own = measured_onsets(training, expected) / expected["step"].values
    ratios = ((halfway / drop.where(drop > 0).values, GRAY, "o"), (own, VERMILION, "D"))
    for place, (ratio, color, marker) in enumerate(ratios):
        spread = np.linspace(-0.28, 0.28, ratio.size)
        axes.plot(place + spread, ratio, marker, color=color, markersize=3.6, linestyle="none")
    axes.axhline(1.0, color=BLACK, linewidth=0.8, zorder=0)
    note(axes, off_by(own).replace(" at", "\nat"), (1, 1), (0, 14), ha="center", fontsize=8.5, color=VERMILION)
    axes.set_xticks([0, 1], ["half of the\ndrop, $P \\to \\infty$", "its beginning,\nfrom own data"])
    axes.set(xlim=(-0.5, 1.5), ylim=(0.85, 1.15), ylabel="measured over predicted time")
    axes.set_title("(c) When the loss falls")


def _draw_differences(axes: Any, data: Data, rounding: float) -> None:
    training, held, predicted = data["training"], data["held"], data["theory"]
    end = float(training["time"][-1])
    infinite = data["population"]["loss"][0] - predicted["loss"][0]
    curves = (
        (training["time"], training["loss"][0] - held["loss"][0], GREEN, "label blocks free, from held"),
        (predicted["time"], infinite, BLACK, "$P \\to \\infty$, from $D + 1$ equations"),
        (held["time"], held["loss"][0] - data["mlp"]["loss"][0], BLUE, "label blocks held, from MLP(z)"),
    )
    after = 1.25 * float(predicted["drop_time"][0])
    place: Any = {"ha": "right", "fontsize": 8.5}
    for times, difference, color, label in curves:
        # A difference of exactly zero is drawn at the smallest step of float64.
        sizes = np.maximum(np.abs(np.asarray(difference)), np.finfo(float).eps / 2)
        axes.semilogy(times, sizes, color=color, linewidth=1.3)
        later = sizes[np.asarray(times) > after]
        height = (later if later.size else sizes).max()
        note(axes, label, (end, height), (0, 5), color=color, **place)
    axes.axhline(rounding, color=GRAY, linestyle=":", linewidth=1.4)
    note(axes, "tolerance of held blocks", (end, rounding), (0, -11), color=_QUIET, **place)
    axes.set(ylim=(3e-17, 3e1), yticks=[1e-15, 1e-10, 1e-5, 1e0], xlim=(0, end), ylabel="difference of two losses")
    axes.set(xlabel="training time $t/\\tau$", title="(d) How far apart curves are, first seed")


def _draw_white(axes: Any, white: xr.Dataset) -> None:
    for place, size in enumerate(white["size"].values):
        one = white.sel(size=size)
        color = PALETTE[place % len(PALETTE)]
        style: Any = {"color": color, "linewidth": 2.2, "alpha": 0.5, "label": f"weights of size {scientific(size)}"}
        lines(axes, one["clock"], one["measured"].values[:1], **style)
        known = "eq. 10" if place == white.sizes["size"] - 1 else None
        lines(axes, one["clock"], one["predicted"].values[:1], ":", color=BLACK, linewidth=1.2, label=known)
    axes.axhline(float(white["end"]), color=GRAY, linewidth=0.8, zorder=0)
    axes.set(xlim=(0, float(white["clock"].max())), ylim=(0, 1.55 * float(white["end"])), yticks=[0, 0.25, 0.5, 0.75])
    axes.set(xlabel="training time $t/\\tau$", ylabel="coefficient $\\sigma(t)$ of the prediction")
    axes.set(title="(e) White inputs: the paper's eq. 10")
    axes.legend(loc="upper left", fontsize=8.5)
