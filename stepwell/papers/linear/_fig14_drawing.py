"""Fig 14: the drawing."""

from typing import Any

import matplotlib.figure
import numpy as np
from matplotlib.colors import to_rgb

from stepwell.analysis.style import BLACK, GRAY, new_figure, styled
from stepwell.figures import Data

from ._fig14_settings import SHARES, Settings
from ._onset import measured_onsets, off_by
from ._published import from_dataset

_RED = "#B2182B"
_BLUE = "#2166AC"
"""The paper's colors, near the ends of the map RdBu, which the color-blind can distinguish."""
_CURVES = (
    ("iw", "in_weight_test_loss", "tested", _BLUE, "in-weight test"),
    ("ic", "in_context_test_loss", "tested", _RED, "in-context test"),
    ("train", "loss", "step", BLACK, "training"),
)
_END = 2.6


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(10.4, 9.0)
        rows: Any = figure.subfigures(2, 1, height_ratios=(2.0, 1.0))
        _draw_curves(rows[0], data)
        ends, onsets = rows[1].subplots(1, 2)
        _draw_ends(ends, data)
        _draw_onsets(onsets, data)
    return figure


def _draw_curves(place: Any, data: Data) -> None:
    sampled, kept = data["sampled"], data["published"]
    panels = place.subplots(2, 3, sharex=True, sharey=True)
    seeds, end = sampled.sizes["seed"], int(sampled["step"][-1])
    for axes, share, letter in zip(panels.flat, SHARES, "abcdef", strict=True):
        for _, name, along, color, label in _CURVES:
            curves = sampled[name].sel(share=share)
            for seed in range(seeds):
                loss = curves[seed] / (float(curves[seed, 0]) if name == "loss" else 1.0)
                known = f"{label}, {seeds} seeds of ours" if seed == 0 else None
                axes.plot(sampled[along], loss, color=_pale(color), linewidth=0.8, label=known, zorder=1)
        for kind, _, _, color, label in _CURVES:
            curve = from_dataset(kept, f"fig14_icl{share}_{kind}")
            step, loss = _with_gaps(curve)
            axes.plot(step, loss, "--", color=color, linewidth=1.8, label=f"{label}, the paper's run", zorder=3)
        extra = {0.0: ": noise as context", 1.0: ": a task in every context"}.get(share, "")
        axes.set_title(f"({letter}) icl = {share:g}{extra}")
        axes.set_ylim(0, _END)
        axes.set_xlim(0, end)
        axes.set_xticks([0, end / 2, end])
    for axes in panels[:, 0]:
        axes.set_ylabel("loss (mean squared error)")
    for axes in panels[1]:
        axes.set_xlabel("training step")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    place.legend(handles, labels, loc="outside upper center", ncols=2)


def _pale(color: str) -> Any:
    """A lighter tint, so that dashes of the color itself stand out."""
    return tuple(0.45 * part + 0.55 for part in to_rgb(color))


def _with_gaps(curve: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step and loss, with a break where the picture's curve is hidden for long."""
    step, loss = curve.T
    breaks = np.flatnonzero(np.diff(step) > 100.0) + 1
    return np.insert(step, breaks, np.nan), np.insert(loss, breaks, np.nan)


def _draw_ends(axes: Any, data: Data) -> None:
    sampled, infinite, predicted = data["sampled"], data["infinite"], data["theory"]
    for _, name, _, color, label in _CURVES[:2]:
        ends = sampled[name].isel(tested=-1)
        for place, share in enumerate(SHARES):
            spread = np.linspace(-0.03, 0.03, ends.sizes["seed"])
            axes.plot(share + spread, ends[:, place], ".", color=_pale(color), markersize=4, zorder=1,
                      label=f"{label}, seeds" if place == 0 else None)  # fmt: skip
        exact = infinite[name].isel(seed=0, tested=-1)
        axes.plot(SHARES, exact, "o-", color=color, markersize=4.5, linewidth=1.2, label=f"{label}, infinite data")
        short = name.removesuffix("_test_loss")
        for which in (0, 1):
            end = float(predicted[f"{short}_end_at_{which}"])
            known = "closed form" if which == 0 and short == "in_weight" else None
            axes.plot([which], [end], "s", color="none", markeredgecolor=BLACK, markersize=9, zorder=4, label=known)
    axes.set_yscale("log")
    axes.set_ylim(0.04, 14)
    axes.set_yticks([0.1, 1.0], ["0.1", "1"])
    axes.set_xlabel("share icl of sequences with a task of their own")
    axes.set_ylabel("test loss at the end (logarithmic)")
    axes.set_title("(g) What is learned in the end")
    axes.legend(loc="upper center", ncols=2, fontsize=8.5)


def _draw_onsets(axes: Any, data: Data) -> None:
    run, expected = data["sampled"], data["sampled_onset"]
    measured = measured_onsets(run, expected)
    for place, share in enumerate(SHARES):
        level = 0.75 * place / (len(SHARES) - 1)
        axes.plot(expected["step"][:, place], measured[:, place], "o", color=str(level), markersize=4,
                  markerfacecolor="none", label=f"icl = {share:g}")  # fmt: skip
    seen = measured[np.isfinite(measured)]
    if seen.size:
        axes.plot([seen.min(), seen.max()], [seen.min(), seen.max()], color=GRAY, linewidth=0.8, zorder=0)
    axes.set_xlabel("predicted step of the onset")
    axes.set_ylabel("measured step")
    axes.set_title(f"(h) When the loss begins to fall; {off_by(measured / expected['step'].values)}")
    axes.legend(loc="upper left", fontsize=8.5)
