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
from stepwell.experiments import Experiment
from stepwell.trajectory import to_bytes

from ._training_plot import draw

if TYPE_CHECKING:
    from stepwell.experiments import AbstractNames, Course, Level, Place

_ATTEMPTS = 3
"""How often a name is chosen anew if it was taken meanwhile."""


def write_trajectory(
    folder: Path, names: "AbstractNames", run: xr.Dataset, extended: Path | None, *, overwrite: bool
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


def write_tables(place: "Place", names: "AbstractNames", run: xr.Dataset) -> dict[str, Path]:
    """Write losses, and value weights if there are any, as text; return the paths by what they hold."""
    written = {}
    for kind, table in names.tables(run).items():
        content = io.BytesIO()
        np.savetxt(content, table.values, header=" ".join(table.names or ()))
        written[kind] = _write(place, place.tables[kind], content.getvalue())
    return written


def write_plot(
    place: "Place",
    experiment: Experiment,
    run: xr.Dataset,
    levels: "tuple[Level, ...]",
    course: "Course | None",
    ending: str = "png",
) -> Path:
    """Draw the run and write the plot, as png, pdf or svg."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, content = Figure(), io.BytesIO()
    FigureCanvasAgg(figure)
    draw(figure, experiment, run, levels, course)
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
