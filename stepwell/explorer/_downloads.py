"""What can be taken away from the page: figures, data, an animation, and files that describe the same experiment."""

import csv
import inspect
import io
import shlex
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown
from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.experiments import LOADED, SECTIONS, Experiment, find_kind

from ._state import State
from ._view import View, kept_view

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.store import Store

_FRAMES = 24
_NAME = "explorer_run"  # of files. A script that is called like the package would import itself.


class Kind(NamedTuple):
    ending: str
    media: str
    make: "Callable[[Sequence[State]], bytes]"
    alone: bool = False  # whether it is of one configuration; of several there is an archive of one for each


def download(states: Sequence[State], kind: str) -> tuple[str, str, bytes]:
    """The name, media type and content of the file of a kind for up to four configurations, if there is one."""
    if kind not in KINDS:
        raise InvalidInput(f"there is no download {shown(kind)}; there are {', '.join(KINDS)}")
    for state in states:
        state.run  # noqa: B018  (there is none of stored runs)
    what = KINDS[kind]
    if not what.alone or len(states) == 1:
        return f"{_NAME}.{what.ending}", what.media, what.make(states)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for letter, state in zip("abcd", states, strict=False):
            file.writestr(f"{_NAME}-{letter}.{what.ending}", what.make([state]))
    return f"{_NAME}-{what.ending}.zip", "application/zip", archive.getvalue()


def _figure(states: Sequence[State], ending: str) -> bytes:
    figure, made = _draw([kept_view(state) for state in states], _names(states)), io.BytesIO()
    figure.savefig(made, format=ending, metadata={"Date" if ending == "svg" else "CreationDate": None})
    return made.getvalue()


def _names(states: Sequence[State]) -> list[str]:
    """What a configuration is called: what differs from the first."""
    first, names = states[0].run.canonical(), ["first"]
    for state in states[1:]:
        own = state.run.canonical()
        changed = [f"{name} {value}" for name, value in own.items() if first.get(name) != value]
        names.append(", ".join(changed)[:60] or "the same")
    return names


def _draw(views: Sequence[View], names: Sequence[str]) -> Figure:
    """The losses of configurations called `names` on one axis; below, the weights and the map of the first."""
    first = views[0]
    with styled():
        figure = new_figure(8.0, 6.0)
        above, below = figure.subfigures(2, 1, height_ratios=(1.15, 1))  # pyright: ignore[reportGeneralTypeIssues]
        _draw_losses(above.subplots(), views, names)
        if "omega" in first:
            axes = below.subplots(1, 2)
            _draw_heads(axes[0], first, first["omega"].reshape(first["time"].size, -1), r"$\omega$")
            name, symbol = ("allocation", r"$\mu\omega$") if "allocation" in first else ("mu", r"$\mu$")
            _draw_heads(axes[1], first, first[name].reshape(first["time"].size, -1), symbol)
        elif "values" in first:
            mapped = "map" in first
            axes = below.subplots(1, 3, width_ratios=(1.6, 1, 1)) if mapped else [below.subplots()]
            _draw_heads(axes[0], first, first["values"], "value weights", dashed=first["values_theory"])
            if mapped:
                top = float(max(np.abs(first["map"][-1]).max(), np.abs(first["target"]).max())) or 1.0
                titles = {"effective map": first["map"][-1], "target": first["target"]}
                for panel, (title, matrix) in zip(axes[1:], titles.items(), strict=True):
                    panel.imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top)
                    panel.set(title=title, xticks=[], yticks=[])
    return figure


def _times(axes: Any, view: View) -> None:
    time = view["time"]
    axes.set_xlabel("step" if view["time_name"] == "step" else f"time {view['time_name']}")
    if time[-1] > 0:
        axes.set_xscale("log")
        axes.set_xlim(max(1e-3 * time[-1], float(time[time > 0].min())), time[-1])


def _draw_losses(axes: Any, views: Sequence[View], names: Sequence[str]) -> None:
    first = views[0]
    for number, (view, name) in enumerate(zip(views, names, strict=True)):
        axes.plot(view["time"], view["loss"], color=(BLACK, *PALETTE)[number], label=name)
    for level in [*first.get("levels", ()), *first.get("limits", {}).values()]:
        axes.axhline(level, color=GRAY, linestyle=":", linewidth=1.2, zorder=0)
    for time in first.get("drop_times", ()):
        if np.isfinite(time):
            axes.axvline(time, color=GRAY, linestyle="--", linewidth=1.0, zorder=0)
    for time, off in zip(first.get("drop_times", ()), first.get("drop_uncertainties", ()), strict=False):
        if np.isfinite(off):
            axes.axvspan(time - off, time + off, color=GRAY, alpha=0.15, linewidth=0, zorder=0)
    longest = max(views, key=lambda view: float(view["time"][-1]))
    _times(axes, longest)
    top = 3 * max(float(view["loss"][0]) for view in views)
    axes.set_ylim(0, 1.05 * min(max(float(np.max(view["loss"])) for view in views), top))
    axes.set_ylabel("loss")
    if len(views) > 1:
        axes.legend()


def _draw_heads(axes: Any, view: View, curves: np.ndarray, title: str, dashed: np.ndarray | None = None) -> None:
    for head in range(curves.shape[1]):
        color = PALETTE[head % len(PALETTE)]
        axes.plot(view["time"], curves[:, head], color=color)
        if dashed is not None:
            axes.plot(view["time"], dashed[:, head], color=color, linestyle="--", linewidth=1.0)
    _times(axes, view)
    axes.set_title(title)


def trajectory(state: State) -> "xr.Dataset":
    """The run of a state as `Experiment.run` returns it, if the page itself finishes it in time."""
    experiment = state.run
    if state.long and (shown_view := kept_view(state))["outcome"] == "cut off":
        raise InvalidInput(shown_view["message"])
    return experiment.run(progress=False, throw=False)


def store_run(state: State, store: "Store") -> str:
    """Put the run of a state into a store; the name by which the store knows it."""
    from stepwell.store import save_run

    made = trajectory(state)
    if made.attrs["outcome"] not in ("finished", "converged"):
        raise InvalidInput(f"the run ended as {made.attrs['outcome']}, and is not stored: {made.attrs['message']}")
    save_run(store, made)
    return state.run.name


def _netcdf(states: Sequence[State]) -> bytes:
    from stepwell.trajectory import to_bytes

    return to_bytes(trajectory(states[0]))


def _csv(states: Sequence[State]) -> bytes:
    """A row for each point and quantity: configuration, time, step, quantity, its indices from 1, and value."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    writer.writerow(["configuration", "time_t_over_tau", "step", "quantity", "index", "value"])
    for letter, state in zip("abcd", states, strict=False):
        shown_view = kept_view(state)
        time, steps = shown_view["time"], shown_view.get("steps")
        timed = shown_view["time_name"] != "step"
        for name in ("loss", "values", "values_theory", "map", "omega", "mu", "allocation"):
            if name not in shown_view:
                continue
            values = np.asarray(shown_view[name])
            flat = values.reshape(values.shape[0], -1)
            for column, place in enumerate(np.ndindex(values.shape[1:])):
                index = ":".join(str(number + 1) for number in place)
                for row in np.flatnonzero(np.isfinite(flat[:, column])).tolist():
                    step, when = "" if steps is None else int(steps[row]), repr(float(time[row])) if timed else ""
                    writer.writerow([letter, when, step, name, index, repr(float(flat[row, column]))])
    return made.getvalue().encode()


def _gif(states: Sequence[State]) -> bytes:
    from stepwell.analysis import animate

    experiment = states[0].run
    task: Any = None if experiment.theory == "units" or experiment.no_theory() else experiment.build().task
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.gif"
        animate(trajectory(states[0]), task, frames=_FRAMES).save(file, writer="pillow")
        return file.read_bytes()


def _files(experiment: Experiment) -> list[str]:
    """The files of a user's that register kinds of the experiment."""
    builders = [find_kind(section, getattr(experiment, section).kind).build for section in SECTIONS]
    sources = {str(Path(inspect.getsourcefile(builder) or "").resolve()) for builder in builders}
    return [path for path in LOADED if path in sources]


_SCRIPT = '''"""A run of the explorer."""

import stepwell as sw

{loads}experiment = sw.Experiment(
{sections}
)
run = experiment.run(progress=False)
print(f"final loss {{float(run['loss'][0, -1]):.10g}}")
{compared}run.stepwell.plot(log=True).savefig("{name}.png")
'''


def _script(states: Sequence[State]) -> bytes:
    experiment = states[0].run
    lines = [f"    {section}={value!r}," for section, value in experiment.given().items()]
    loads = "".join(f"sw.experiments.load_kinds({path!r})\n" for path in _files(experiment))
    predicted = not experiment.no_comparison()
    compared = "print(run.stepwell.compare())  # drops, predicted and measured, in t/τ\n" if predicted else ""
    return _SCRIPT.format(
        loads=loads and f"{loads}\n", sections="\n".join(lines), compared=compared, name=_NAME
    ).encode()


def _command(states: Sequence[State]) -> bytes:
    made = ""
    for state in states:
        loads = [word for path in _files(state.run) for word in ("--with", path)]
        made += shlex.join([*state.run.command(), *loads]) + "\n"
    return made.encode()


KINDS: dict[str, Kind] = {
    "svg": Kind("svg", "image/svg+xml", lambda states: _figure(states, "svg")),
    "pdf": Kind("pdf", "application/pdf", lambda states: _figure(states, "pdf")),
    "netcdf": Kind("nc", "application/x-netcdf", _netcdf, alone=True),
    "csv": Kind("csv", "text/csv", _csv),
    "gif": Kind("gif", "image/gif", _gif, alone=True),
    "script": Kind("py", "text/x-python", _script, alone=True),
    "toml": Kind("toml", "application/toml", lambda states: states[0].run.to_toml().encode(), alone=True),
    "command": Kind("sh", "text/x-shellscript", _command),
}
"""Kinds of downloads by name."""
