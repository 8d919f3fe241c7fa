"""Figures of a run: its loss with the theory's levels and drops, the size of every weight, its effective map."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.runs import with_runs
from stepwell._util.text import after_the_end
from stepwell.tasks import AbstractSupervisedTask, Batch
from stepwell.theory import LinearTask, linear
from stepwell.trajectory import model_settings

from ._compare import Comparison, compare, convention
from ._maps import effective_map
from ._recorded import weight_axis
from ._style import BLACK, PALETTE, VERMILION, panels_of, styled

LABELS = {"step": "training step", "snapshot": "training step", "time": r"flow time $t/\tau$"}
QUIET = "#555555"
_LARGEST = 1e100
_COLUMNS = 3
_MANY = 12
"""Ensembles of more runs than this are drawn with thinner lines."""
_MARGIN = 0.02
"""By which the axis is longer than the run."""
_MOVED = 0.01
"""The part of its whole fall by which the loss has moved."""
_BEFORE = 0.1
"""A logarithmic axis begins at this part of the time when it has."""


def curve_axis(trajectory: xr.Dataset) -> str:
    """The axis of curves, `step` or `time`."""
    for axis in ("step", "time"):
        if axis in trajectory.dims and "loss" in trajectory and axis in trajectory["loss"].dims:
            return axis
    raise InvalidInput("the data set has no loss over step or time; give what descend, online or flow returned")


def run_of(trajectory: xr.Dataset, run: int) -> xr.Dataset:
    """One run of an ensemble, still with the dimension `run`."""
    trajectory = with_runs(trajectory)
    size = trajectory.sizes["run"] if "run" in trajectory.dims else 0
    if not -size <= run < size:
        raise InvalidInput(f"run is {run}; the trajectory has {size} runs, counted from 0")
    return trajectory.isel(run=[run])


def draw_levels(
    axes: Any, levels: Float[np.ndarray, " level"], learned: Sequence[int] | None = None, *, apart: float = 0.05
) -> None:
    """Dotted lines with labels at the right; a label that would run into the one before is left out.

    `learned` is how many components are learned at each; by default one more at each than at the one before.
    """
    if levels.size == 0:
        return
    last = np.inf
    for m, level in zip(range(levels.size) if learned is None else learned, levels.tolist(), strict=True):
        axes.axhline(level, color="#767676", linestyle=":", linewidth=1.3, zorder=0)
        if last - level > apart * levels[0]:
            last = level
            place = {"xycoords": ("axes fraction", "data"), "va": "center", "color": QUIET, "fontsize": 9}
            axes.annotate(f"$L_{{{m}}}$", (1.01, level), annotation_clip=False, **place)


def set_points(axes: Any, trajectory: xr.Dataset, *, log: bool) -> None:
    """Set the limits and the scale of the axis of steps or time.

    It is a little longer than the run, so that what happens at its end is seen. A logarithmic one begins shortly before
    the loss first moves: the first steps of a solver show nothing.

    **Arguments:**

    - `axes`: the matplotlib axes.
    - `trajectory`: the run that is drawn.
    - `log`: whether the axis is logarithmic.

    **Returns:** nothing.

    **Example:**

    >>> from stepwell.analysis.style import new_figure, set_points
    >>> axes = new_figure(4.0, 3.0).subplots()
    >>> set_points(axes, sw.Experiment(task={"dim": 2}).run(progress=False), log=True)
    >>> axes.get_xscale()
    'log'
    """
    points = trajectory[curve_axis(trajectory)].values.astype(float)
    first, last = float(points[0]), float(points[-1])
    if not log or not last > 0:
        axes.set_xlim(first, last + _MARGIN * (last - first) if last > first else first + 1.0)
        return
    losses = drawable(trajectory["loss"].values)
    fall = np.nanmax(losses[:, :1] - losses, axis=0, initial=0.0)
    moved = points[(fall > _MOVED * fall.max()) & (points > 0)]
    begin = max(float(points[points > 0].min()), _BEFORE * float(moved[0]) if moved.size else 0.0)
    axes.set_xscale("log")
    if last > 10 * begin:  # a power of ten is named; what is between would be crowded
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(begin, last * (last / begin) ** _MARGIN if last > begin else 10 * last)


def drawable(values: np.ndarray) -> np.ndarray:
    """Values, with NaN for those of a run that diverges which matplotlib could not place."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) < _LARGEST, values, np.nan)


def frame_places(
    time: Float[np.ndarray, " point"], loss: Float[np.ndarray, " point"], count: int
) -> Int[np.ndarray, " frame"]:
    """Places of recorded points: half of the frames follow time, half the fall of the loss."""
    fall = -np.minimum.accumulate(loss)
    parts = [(x - x[0]) / (x[-1] - x[0]) for x in (time, fall) if x[-1] > x[0]]
    clock = np.sum(parts, axis=0) if parts else np.zeros(time.size)
    return np.unique(np.searchsorted(clock, np.linspace(0, clock[-1], count)).clip(0, clock.size - 1))


def loss_at(trajectory: xr.Dataset, points: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """The loss of the first run where weights were recorded."""
    axis = curve_axis(trajectory)
    return np.interp(points, trajectory[axis].values.astype(float), trajectory["loss"].values[0])


@checked
def draw_staircase(
    trajectory: xr.Dataset,
    task: LinearTask | AbstractSupervisedTask | Comparison | None = None,
    *,
    log: bool = False,
    title: str = "",
    ax: Any = None,
) -> Figure:
    """Return a figure of the loss against steps or time; with a task, with the theory's levels and predicted drops.

    Drops are predicted for linear separate and merged attention and for networks of units; of other models, levels are
    drawn alone.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned, one run or an ensemble.
    - `task`: the regression that it was trained on, or the `Comparison` of an experiment's run, as
      `experiments.compare_run` returns it, for each seed with its own task. By default nothing but the loss is drawn,
      which needs no theory.
    - `log`: whether the axis of steps or time is logarithmic.
    - `title`: a title, by default none.
    - `ax`: the matplotlib axes to draw on, by default those of a new figure.

    **Returns:** the matplotlib figure.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.descend(model, sw.objectives.Population(task), rate=0.05, steps=600, progress=False)
    >>> figure = sw.analysis.draw_staircase(trajectory, task)
    >>> figure.savefig("staircase.png")
    >>> figure.axes[0].get_xlabel()
    'training step'
    """
    trajectory = with_runs(trajectory)
    axis = curve_axis(trajectory)
    points = trajectory[axis].values.astype(float)
    compared = task if isinstance(task, Comparison) or task is None else _compared(trajectory, task)
    with styled():
        figure, (axes,) = panels_of(ax, (6.4, 3.8))
        count = trajectory.sizes["run"]
        for number, loss in enumerate(trajectory["loss"].transpose("run", axis, ...).values):
            label = ("loss" if count == 1 else f"loss of {count} runs") if number == 0 else None
            width = 1.6 if count == 1 else 1.0 if count <= _MANY else 0.7
            axes.plot(points, loss, color=BLACK, linewidth=width, label=label)
        if compared is not None:
            first, *others = compared.runs
            for levels in [run.levels for run in others if not np.allclose(run.levels, first.levels, atol=0.0)]:
                axes.hlines(levels, 0, 1, "#767676", ":", linewidth=0.5, zorder=0, transform=axes.get_yaxis_transform())
            draw_levels(axes, first.levels, first.learned)
            _draw_drops(axes, compared, points)
        elif task is not None and not isinstance(task, Comparison | AbstractSupervisedTask):
            draw_levels(axes, linear.levels(task))
        set_points(axes, trajectory, log=log)
        finite = trajectory["loss"].values[np.isfinite(trajectory["loss"].values)]
        axes.set_ylim(0, 1.08 * min(float(finite.max()), 3 * float(finite[0])) if finite.size else 1.0)
        axes.set(xlabel=LABELS[axis], ylabel="loss", title=title)
        if compared is not None or count > 1:
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return figure


def _compared(trajectory: xr.Dataset, task: Any) -> Comparison | None:
    """The comparison with theory; None for a model of which the theory predicts no drops."""
    try:
        if not isinstance(task, AbstractSupervisedTask):
            convention(trajectory, task)
    except InvalidInput:
        return None
    return compare(trajectory, task)


def _draw_drops(axes: Any, compared: Comparison, points: np.ndarray) -> None:
    """A mark halfway between two levels, where the theory says that the loss passes."""
    predicted = np.array([drop.predicted_step if compared.stepped else drop.predicted for drop in compared.drops])
    half = np.concatenate([(run.levels[:-1] + run.levels[1:]) / 2 for run in compared.runs])
    within = (predicted > points[0]) & (predicted <= points[-1])
    late = [time for time, drop in zip(predicted, compared.drops, strict=True) if drop.status == "after the end"]
    if within.any() or late:
        style = {"markersize": 6.0, "markerfacecolor": "none", "markeredgewidth": 1.4, "color": VERMILION}
        off = np.array([drop.uncertainty / drop.predicted for drop in compared.drops]) * predicted
        listed = after_the_end(late) if len(compared.runs) == 1 else f" ({len(late)} after the end)" if late else ""
        label = f"predicted drops{listed}"
        axes.errorbar(predicted[within], half[within], xerr=off[within], fmt="D", label=label, zorder=4, **style)


@checked
def draw_weights(trajectory: xr.Dataset, *, run: int = 0, log: bool = False, title: str = "", ax: Any = None) -> Figure:
    """Return a figure of the size of every weight along a run: a panel for each array, a line for each head.

    The size is the root of the sum of squares over all but the heads; weights without heads are one line.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.
    - `run`: which run of an ensemble is drawn, counted from 0.
    - `log`: whether the axis of steps or time is logarithmic.
    - `title`: a title, by default none.
    - `ax`: the matplotlib axes to draw on, one for each array; by default those of a new figure.

    **Returns:** the matplotlib figure.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> [axes.get_title("left") for axes in sw.analysis.draw_weights(trajectory).axes]
    ['value', 'key', 'query']
    """
    sizes = weight_sizes(trajectory, run)
    axis = weight_axis(trajectory)
    with styled():
        columns = min(_COLUMNS, len(sizes))
        rows = math.ceil(len(sizes) / columns)
        size = (3.2 * columns + 0.6, 2.7 * rows)
        figure, panels = panels_of(ax, size, rows, columns, len(sizes), sharex=True)
        for panel, (name, lines) in zip(panels, sizes.items(), strict=False):
            draw_heads(panel, trajectory[axis].values, lines)
            set_points(panel, run_of(trajectory, run), log=log)
            panel.set_title(name)
            panel.set_xlabel(LABELS[axis])
        for panel in panels[len(sizes) :]:
            panel.set_visible(False)
        panels[0].set_ylabel("size of the weights")
        heads = max(lines.shape[1] for lines in sizes.values())
        if 1 < heads <= len(PALETTE):
            most = max(sizes, key=lambda name: sizes[name].shape[1])
            panel = panels[list(sizes).index(most)]
            if ax is None:
                figure.legend(*panel.get_legend_handles_labels(), loc="outside right upper")
            else:
                panel.legend()
        if title:
            figure.suptitle(title)
    return figure


def weight_sizes(trajectory: xr.Dataset, run: int) -> dict[str, np.ndarray]:
    """The size of each weight over (point, head), by name."""
    axis = weight_axis(trajectory)
    one = run_of(trajectory, run).isel(run=0)
    curve_axis(trajectory)
    curves = {"loss", axis, "time", "snapshot_time", *_observed(trajectory)}
    # A weight that has the name of an axis, which then has several dimensions, is a coordinate for xarray.
    names = [str(n) for n, v in one.variables.items() if axis in v.dims and (n not in curves or v.ndim > 1)]
    if not names:
        raise InvalidInput(
            "the data set has no weights over snapshot or time; give what descend, online or flow returned"
        )
    sizes = {}
    for name in names:
        values = one.variables[name]
        inner = [dim for dim in values.dims if dim not in (axis, "head")]
        total = (values**2).sum(inner) ** 0.5
        sizes[name] = total.transpose(axis, "head").values if "head" in total.dims else total.values[:, None]
    return sizes


def _observed(trajectory: xr.Dataset) -> list[str]:
    """The names of observed curves, which may have any shape, as the provenance lists them."""
    try:
        return list(json.loads(trajectory.attrs["configuration"])["observed"])
    except (KeyError, ValueError, TypeError):
        return []


def draw_heads(axes: Any, points: np.ndarray, lines: np.ndarray) -> list[Any]:
    """Draw a line for each head; return the lines."""
    count, drawn = lines.shape[1], []
    for head in range(count):
        color = BLACK if count == 1 else PALETTE[head % len(PALETTE)]
        drawn += axes.plot(points, lines[:, head], color=color, linewidth=1.6, label=f"head {head + 1}")
    top = float(np.nanmax(lines, initial=0.0))
    axes.set_ylim(0, 1.08 * top if top > 0 else 1.0)
    return drawn


@checked
def draw_map(
    trajectory: xr.Dataset,
    task: LinearTask | None = None,
    *,
    batch: Batch | None = None,
    panels: int = 5,
    run: int = 0,
    title: str = "",
    ax: Any = None,
) -> Figure:
    r"""Return a figure of the effective map, with $\hat y = \beta^\top A x_q$, at several points of a run.

    **Arguments:**

    - `trajectory`: a run of a model with one output that declares its effective map, as attention does.
    - `task`: the regression that it was trained on. With it, maps are drawn in the eigenvectors of the inputs'
      covariance, with attention divided by N, and the map that is the best at the end. By default maps are drawn
      as they are.
    - `batch`: sequences to measure the maps on, for a model that declares none (`analysis.effective_map`).
    - `panels`: how many points of the run are drawn; between the first and the last they follow time and the loss.
    - `run`: which run of an ensemble is drawn, counted from 0.
    - `title`: a title, by default none.
    - `ax`: the matplotlib axes to draw on, one for each map; by default those of a new figure.

    **Returns:** the matplotlib figure.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> sw.analysis.draw_map(trajectory, task, panels=3).axes[3].get_title("left")
    'theory: the minimum'
    """
    panels = int(checks.number("panels", panels, least=2, most=50))
    one = run_of(trajectory, run)
    maps, goal = maps_of(one, task, batch)
    points = one[weight_axis(trajectory)].values.astype(float)
    places = frame_places(points, loss_at(one, points), panels)
    unit = "step" if weight_axis(trajectory) == "snapshot" else r"$t/\tau$"
    shown: list[tuple[str, np.ndarray]] = [(f"{unit} = {points[p]:.4g}", maps[p]) for p in places]
    if goal is not None:
        shown.append(("theory: the minimum", goal))
    top = float(max(np.abs(each).max() for _, each in shown)) or 1.0
    with styled():
        figure, row = panels_of(ax, (1.9 * len(shown) + 0.7, 2.5), 1, len(shown), len(shown))
        for axes, (name, each) in zip(row, shown, strict=True):
            image = draw_matrix(axes, each, top, in_eigenvectors=task is not None)
            axes.set_title(name, fontsize=9)
        figure.colorbar(image, ax=row, shrink=0.75, pad=0.01)
        if title:
            figure.suptitle(title)
    return figure


def maps_of(
    one: xr.Dataset, task: LinearTask | None, batch: Batch | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The maps (point, dim, dim) of a single run, and where the theory says that they end."""
    maps = effective_map(one, batch=batch).values[0]
    if task is None:
        return maps, None
    values, vectors = np.linalg.eigh(linear.moments(task).input)
    vectors = vectors[:, np.argsort(-values, kind="stable")]
    divided = model_settings(one).get("normalization") or "1/N"
    scale = 1.0 if divided == "1/N" else convention(one, task).scale  # pyright: ignore[reportArgumentType]
    return scale * vectors.T @ maps @ vectors, vectors.T @ linear.minimizer(task) @ vectors


def draw_matrix(axes: Any, matrix: np.ndarray, top: float, *, in_eigenvectors: bool) -> Any:
    """Draw a matrix in colors, red where it is positive; return the image."""
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top)
    size = len(matrix)
    names = [f"$e_{{{d + 1}}}$" if in_eigenvectors else str(d + 1) for d in range(size)]
    ticks = list(range(size)) if size <= 8 else []
    axes.set_xticks(ticks, [names[d] for d in ticks])
    axes.set_yticks(ticks, [names[d] for d in ticks])
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    return image
