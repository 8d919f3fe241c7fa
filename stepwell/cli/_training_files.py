"""What a training run leaves behind: the trajectory, losses as text, the plot.

The trajectory is written first: it holds all the rest. If its folder has no room for it, it is kept elsewhere.
"""

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell._util.files import keep_elsewhere, why, write_bytes
from stepwell._util.paper_time import PAPER_UNIT, TIME_NAME
from stepwell._util.text import after_the_end
from stepwell.experiments import Experiment
from stepwell.trajectory import to_bytes

if TYPE_CHECKING:
    from stepwell.experiments import Course, Level

    from ._names import AnyNames, Place

_ATTEMPTS = 3
"""How often a name is chosen anew if it was taken meanwhile."""
_CURVES = {
    "loss": ("training", "black"),
    "in_weight_test_loss": ("in-weight test", "tab:blue"),
    "in_context_test_loss": ("in-context test", "tab:red"),
}

_LARGEST = 1e100
"""Numbers from here on are not drawn."""


def write_trajectory(
    folder: Path, names: "AnyNames", run: xr.Dataset, extended: Path | None, *, overwrite: bool
) -> "tuple[Place, str]":
    """Write the trajectory of a run, whole or not at all; return where its files belong, and the line about that.

    If that fails, it is written to the user's state folder or to the temporary folder, and `InvalidInput` says where.
    """
    data = to_bytes(run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            place, remark = names.place(folder, extended, overwrite=overwrite)
            try:
                write_bytes(place.trajectory, data, replace=place.trajectory.exists())
                break
            except FileExistsError:  # another run took the name in this moment
                if attempt + 1 == _ATTEMPTS:
                    raise
        return place, remark
    except (OSError, InvalidInput) as error:
        reason = why(error) if isinstance(error, OSError) else str(error)
        kept = keep_elsewhere(names.own(folder)[-1].name, data)
        where = f"is kept in {kept}; move it to {folder}" if kept else "is lost: there is no room elsewhere"
        raise InvalidInput(f"cannot write to the folder {folder} ({reason}); the run {where}") from None


def write_tables(place: "Place", names: "AnyNames", run: xr.Dataset) -> dict[str, Path]:
    """Write losses, and value weights if there are any, as text; return the paths by what they hold."""
    written = {}
    for kind, table in names.tables(run).items():
        content = io.BytesIO()
        np.savetxt(content, table.values, header=" ".join(table.names or ()))
        written[kind] = _write(place, place.tables[kind], content.getvalue())
    return written


def write_plot(place: "Place", ending: str, *drawn: Any) -> Path:
    """Write what `draw` draws, as png, pdf or svg."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, content = Figure(), io.BytesIO()
    FigureCanvasAgg(figure)
    draw(figure, *drawn)
    # Without the date, the same run gives the same file.
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(ending)
    with rc_context({"svg.hashsalt": "stepwell"}):
        figure.savefig(content, dpi=150, format=ending, metadata=dates)
    return _write(place, place.plot(ending), content.getvalue())


def write_animation(place: "Place", run: xr.Dataset, task: Any) -> Path:
    """An animation of the first run; where there is a theory of the task, with its levels and in its eigenvectors."""
    from stepwell.analysis import animate

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.gif"
        animate(run, task).save(path, writer="pillow")
        return _write(place, place.plot("gif"), path.read_bytes())


def _write(place: "Place", path: Path, data: bytes) -> Path:
    try:
        return write_bytes(path, data)
    except OSError as error:
        raise InvalidInput(f"cannot write {path} ({why(error)}); the whole run is in {place.trajectory}") from None


def draw(
    figure: Any, experiment: Experiment, run: xr.Dataset, levels: "tuple[Level, ...]", course: "Course | None"
) -> None:
    """Draw a run into an empty figure: its losses by step or time, what the theory says, value weights if any.

    Of several seeds the first is drawn bold, and what the theory says is of it.
    """
    from stepwell.analysis.style import set_points

    tracked = "value_weight" in run
    axes = figure.subplots(2 if tracked else 1, 1, sharex=True, squeeze=False)[:, 0]
    loss, points, unit = axes[0], run[run["loss"].dims[-1]].values, _time_of_a_step(experiment, run)
    others = run.sizes["run"] - 1
    first = f", seed {experiment.seed}" if others else ""
    for number, other in enumerate(run["loss"].values[1:]):
        label = None if number else f"training, {others} other seed{'s' if others > 1 else ''}"
        loss.plot(points, _drawable(other), color="gray", lw=0.8, alpha=0.5, label=label, zorder=2.5)
    for name, (label, color) in _CURVES.items():
        if name in run:
            loss.plot(points, _drawable(run[name].values[0]), color=color, lw=2, label=f"{label}{first}", zorder=3)
    if course is not None and unit:
        times, values = _drawable(course.times / unit), _drawable(course.loss)
        late = after_the_end([time for drop in course.drops if (time := drop.time / unit) > points[-1]])
        label = f"{course.label}{first}{late}"
        loss.plot(times, values, color="tab:orange", lw=1.5, ls="-.", label=label, zorder=4)
        for drop in (drop for drop in course.drops if drop.time / unit <= points[-1]):
            halfway = np.interp(np.multiply(drop.time, (1 - 1e-9, 1 + 1e-9)), course.times, course.loss).mean()
            off = drop.uncertainty or 0.0
            ends = [(drop.time - off) / unit, (drop.time + off) / unit]
            loss.plot(ends, [halfway] * 2, color="tab:orange", lw=1.2, marker="|", markersize=6, zorder=4)
    top = _top(run, levels)
    _draw_levels(loss, levels, top, first)
    loss.set_ylim(0.0, top)
    loss.set_xlim(0, float(points[-1]) or 1.0)
    if course is not None and unit:
        set_points(loss, run, log=True)  # times of drops grow geometrically
    loss.set_ylabel("loss (mean squared error)")
    loss.set_title(title(experiment), fontsize=10)
    handles, labels = loss.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="lower center", frameon=False)  # a curve may be anywhere in the axes
    # Fixed margins, in inches: a layout engine takes as long as all the rest of the drawing.
    above, panels, below = 0.7, 5.2 if tracked else 3.0, 0.6 + 0.17 * len(labels)
    height = above + panels + below
    figure.set_size_inches(7.0, height)
    figure.subplots_adjust(left=0.11, right=0.88, top=1 - above / height, bottom=below / height, hspace=0.1)
    if "step" in run.dims and 1 / _LARGEST < unit < _LARGEST:
        other = loss.secondary_xaxis("top", functions=(lambda step: step * unit, lambda time: time / unit))
        other.set_xlabel(_time_label(experiment))
    if tracked:
        _draw_tracked(axes[1], run, points)
    axes[-1].set_xlabel("step" if "step" in run.dims else _time_label(experiment))


def title(experiment: Experiment) -> str:
    """What was trained, in a line."""
    task, model, objective, training = experiment.task, experiment.model, experiment.objective, experiment.training
    parts = [f"{'softmax ' if model.get('activation') == 'softmax' else ''}{model.kind}"]
    heads, eigenvalues, dims = model.get("heads"), task.get("eigenvalues"), task.get("dims")
    for count, thing in ((heads, "head"), (model.get("units"), "unit")):
        if isinstance(count, int):
            parts.append(f"{count} {thing}{'s' if count > 1 else ''}")
    parts += [f"rank {model.rank}"] if "rank" in model else []
    if isinstance(dims, tuple):
        parts.append(f"d = {_listed(dims[:6])}")
    elif isinstance(eigenvalues, tuple):
        parts.append(f"D = {len(eigenvalues)}")
    context = task.get("context")
    if context is not None:
        many = isinstance(context, tuple)
        parts.append(f"N ≤ {max(context)}" if many and len(context) > 3 else f"N = {_listed(context)}")
    for name, section in (("scale", model), ("rate", training)):
        if isinstance(section.get(name), int | float):
            parts.append(f"{name} {section[name]:g}")
    if training.get("optimizer", "sgd") != "sgd":
        parts.append(training.optimizer)
    return f"{', '.join(parts)}, {objective.kind}"


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _time_of_a_step(experiment: Experiment, run: xr.Dataset) -> float:
    """The time t/τ of a unit of the axis: of a step, if there are steps; 0 where it is not known."""
    if "step" not in run.dims:
        return 1.0
    if "time" not in run.coords:
        return 0.0
    return float(experiment.time_scale.of_steps(1.0, experiment.training["rate"]))


def _time_label(experiment: Experiment) -> str:
    papers = experiment.time_scale.unit == PAPER_UNIT
    return f"flow time {TIME_NAME}" + (" (attention divided by N)" if papers else "")


def _draw_levels(axes: Any, levels: "tuple[Level, ...]", top: float, first: str) -> None:
    lowest, label = np.inf, f"theory: levels{first}"
    where: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "annotation_clip": False}
    for level in levels:
        axes.axhline(level.loss, color="gray", lw=0.8, ls="--", label=label, zorder=2)
        label = None
        if lowest - level.loss > 0.05 * top:  # a label that would run into the last one is left out
            lowest, text = level.loss, rf"$L_{{{level.learned}}}$ = {level.loss:.3g}"
            axes.annotate(text, (1.0, lowest), xytext=(4, 0), va="center", fontsize=7, color="dimgray", **where)


def _draw_tracked(axes: Any, run: xr.Dataset, points: np.ndarray) -> None:
    values = run["value_weight"].values[0]
    for head in range(values.shape[1]):
        axes.plot(points, _drawable(values[:, head]), lw=1.2, label=f"head {head + 1}" if head < 10 else None)
    axes.axhline(0.0, color="gray", lw=0.6)
    axes.set_ylabel(r"value weight $v_i$")
    axes.legend(frameon=False, fontsize=7, ncols=2)


def _top(run: xr.Dataset, levels: "tuple[Level, ...]") -> float:
    """The upper end of the loss axis. A run that diverged is shown up to three times its first loss."""
    curves = np.array([_drawable(run[name].values[0]) for name in _CURVES if name in run])
    top = _highest(curves)
    if run.attrs["outcome"] == "diverged":
        top = min(top, 3 * _highest(curves[:, :1]))
    top = max(top, _highest(_drawable(np.array([level.loss for level in levels[:1]]))))
    return 1.15 * top if top > 1 / _LARGEST else 1.0


def _drawable(values: np.ndarray) -> np.ndarray:
    """Not a number where values are not finite, or so large that matplotlib's own arithmetic overflows."""
    return np.where(np.abs(values) < _LARGEST, values, np.nan)


def _highest(values: np.ndarray) -> float:
    return float(np.max(values, where=np.isfinite(values), initial=0.0))
