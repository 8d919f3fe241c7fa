"""The plot of a training run: losses, the theory's levels and course, tracked values."""

from typing import Any

import numpy as np
import xarray as xr

from ._setup import IN_CONTEXT, IN_WEIGHT, TRACKED, Setup
from ._theory import Course, Levels, paper_time, time_is_papers

_CURVES = {
    "loss": ("training", "black"),
    IN_WEIGHT: ("in-weight test", "tab:blue"),
    IN_CONTEXT: ("in-context test", "tab:red"),
}

_LARGEST = 1e100
"""Numbers from here on are not drawn."""


def draw(figure: Any, setup: Setup, run: xr.Dataset, levels: Levels | None, course: Course | None) -> None:
    """Draw a run into an empty figure: its losses by step, what the theory says, and tracked values if there are any.

    **Arguments:**

    - `figure`: an empty matplotlib figure, whose size and margins are set here.
    - `setup`: what was trained, as `set_up` builds it.
    - `run`: the trajectory, as `train` returns it.
    - `levels`: the levels to draw, as `levels_of` returns them, or None.
    - `course`: the predicted course to draw, the first of what `course_of` returns, or None.

    **Example:**

    >>> import argparse
    >>> from matplotlib.figure import Figure
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2", "--epoch", "20"])), "population")
    >>> figure = Figure()
    >>> training.draw(figure, setup, training.train(setup, None), training.levels_of(setup), None)
    >>> figure.axes[0].get_ylabel()
    'loss (mean squared error)'
    """
    tracked = TRACKED in run
    figure.set_size_inches(7.0, 6.4 if tracked else 4.2)
    axes = figure.subplots(2 if tracked else 1, 1, sharex=True, squeeze=False)[:, 0]
    # Fixed margins: a layout engine takes as long as all the rest of the drawing.
    figure.subplots_adjust(
        left=0.11, right=0.88, top=0.89 if tracked else 0.83, bottom=0.08 if tracked else 0.12, hspace=0.1
    )
    loss = axes[0]
    steps = run["step"].values
    for other in run["loss"].values[1:]:
        loss.plot(steps, _drawable(other), color="grey", lw=0.8, alpha=0.5, zorder=2.5)
    for name, (label, colour) in _CURVES.items():
        if name in run:
            loss.plot(steps, _drawable(run[name].values[0]), color=colour, lw=2, label=label, zorder=3)
    if course is not None:
        loss.plot(
            _drawable(course.steps),
            _drawable(course.loss),
            color="tab:orange",
            lw=1.5,
            ls="-.",
            label=course.label,
            zorder=4,
        )
    top = _top(run, levels)
    if levels is not None:
        _draw_levels(loss, levels, top)
    loss.set_ylim(0.0, top)
    loss.set_xlim(0, max(1, int(steps[-1])))
    loss.set_ylabel("loss (mean squared error)")
    loss.set_title(_title(setup), fontsize=10)
    loss.legend(fontsize=8, loc="upper right", edgecolor="none", framealpha=0.9).set_zorder(5)
    unit = float(paper_time(setup, 1.0)) if setup.beyond.plain else 0.0
    if 1 / _LARGEST < unit < _LARGEST:
        other = loss.secondary_xaxis("top", functions=(lambda step: step * unit, lambda time: time / unit))
        other.set_xlabel(r"flow time $t/\tau$" + (" (the paper's, attention over N)" if time_is_papers(setup) else ""))
    if tracked:
        _draw_tracked(axes[1], run)
    axes[-1].set_xlabel("epoch")


def _draw_levels(axes: Any, levels: Levels, top: float) -> None:
    lowest = np.inf
    for place, (m, level) in enumerate(zip(levels.learned, levels.losses, strict=True)):
        label = "theory: levels" if place == 0 else None
        axes.axhline(level, color="grey", lw=0.8, ls="--", label=label, zorder=2)
        # A label that would run into the last one is left out.
        if lowest - level > 0.05 * top:
            lowest = level
            axes.annotate(
                rf"$L_{{{m}}}$ = {level:.3g}",
                (1.0, level),
                xycoords=("axes fraction", "data"),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                color="dimgrey",
                annotation_clip=False,
            )


def _draw_tracked(axes: Any, run: xr.Dataset) -> None:
    values = run[TRACKED].values[0]
    for head in range(values.shape[1]):
        axes.plot(
            run["step"].values, _drawable(values[:, head]), lw=1.2, label=f"head {head + 1}" if head < 10 else None
        )
    axes.axhline(0.0, color="grey", lw=0.6)
    axes.set_ylabel(r"value weight $v_i$")
    axes.legend(frameon=False, fontsize=7, ncols=2)


def _top(run: xr.Dataset, levels: Levels | None) -> float:
    """The upper end of the loss axis. A run that diverged is shown up to three times its first loss."""
    curves = [_drawable(run[name].values[0]) for name in _CURVES if name in run]
    first = max(_highest(curve[:1]) for curve in curves)
    highest = max(_highest(curve) for curve in curves)
    if run.attrs["outcome"] == "diverged":
        highest = min(highest, 3 * first)
    level = 0.0 if levels is None else _highest(_drawable(np.array(levels.losses[:1])))
    top = max(highest, level)
    return 1.15 * top if top > 1 / _LARGEST else 1.0


def _drawable(values: np.ndarray) -> np.ndarray:
    """Not a number where values are not finite, or so large that matplotlib's own arithmetic overflows."""
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _highest(values: np.ndarray) -> float:
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def _title(setup: Setup) -> str:
    flags, beyond = setup.flags, setup.beyond
    heads = f"{flags.head_num} head" + ("s" if flags.head_num > 1 else "")
    if beyond.task.dims is not None:
        data = f"d = {', '.join(map(str, beyond.task.dims))}, N = {flags.context}"
        return f"softmax attention, {heads}, {data}, init {flags.init:g}, rate {flags.lr:g}, {setup.engine}"
    rank = f", rank {flags.rank}" if flags.kind.has_rank else ""
    kind = "softmax " if flags.softmax else ""
    data = (
        f"D = {flags.in_dim}, N = {flags.context}" if not flags.vary_len else f"D = {flags.in_dim}, N ≤ {flags.context}"
    )
    if beyond.task.context is not None:
        data = f"D = {flags.in_dim}, N = {', '.join(map(str, beyond.task.context))}"
    if not beyond.plain:
        data += f", {beyond.optimiser}" + ("" if beyond.schedule == "constant" else f", {beyond.schedule}")
    mixture = f", icl {flags.icl:g}" if flags.icl != 1 else ""
    return (
        f"{kind}{flags.model}, {heads}{rank}, {data}{mixture}, init {flags.init:g}, rate {flags.lr:g}, {setup.engine}"
    )
