"""What a training run leaves behind: loss files with the published names, the trajectory, the plot.

The trajectory is written first: it holds all the rest. If its folder has no room for it, it is kept elsewhere.
"""

import io
from pathlib import Path

import numpy as np
import xarray as xr

from stepwell._errors import InvalidInput
from stepwell._files import keep_elsewhere, why, write_bytes
from stepwell.trajectory import to_bytes

from ._names import Place, choose_place
from ._plot import draw
from ._setup import IN_CONTEXT, IN_WEIGHT, TRACKED, Setup
from ._theory import Course, Levels

_ATTEMPTS = 3
"""How often a name is chosen anew if it was taken meanwhile; each run has two."""


def write_trajectory(
    folder: Path, setup: Setup, run: xr.Dataset, extended: Path | None = None, *, overwrite: bool = False
) -> tuple[Place, str]:
    """Write the trajectory of a run, whole or not at all, where `choose_place` says.

    If that fails, it is written to the user's state folder or to the temporary folder, and `InvalidInput` says where.

    **Arguments:**

    - `folder`: the folder of the file. It is made if it is gone.
    - `setup`: what was trained, as `set_up` builds it.
    - `run`: the trajectory, as `train` returns it.
    - `extended`: the file of the run that was resumed.
    - `overwrite`: whether another run's files of the same name may be replaced.

    **Returns:** the `Place` of all files of the run, and the line of `choose_place`.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2", "--epoch", "20"])), "population")
    >>> place, remark = training.write_trajectory(Path("."), setup, training.train(setup, None))
    >>> place.trajectory.name
    'attnM_head1_D2_R1_P5000_N32_seed10.nc'
    """
    data = to_bytes(run)
    name = Place(folder, setup.flags, "", setup.beyond).trajectory.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(_ATTEMPTS):
            place, remark = choose_place(folder, setup, extended, overwrite=overwrite)
            try:
                write_bytes(place.trajectory, data, replace=place.trajectory.exists())
                break
            except FileExistsError:  # another run took the name in this moment
                if attempt + 1 == _ATTEMPTS:
                    raise
        return place, remark
    except (OSError, InvalidInput) as error:
        reason = why(error) if isinstance(error, OSError) else str(error)
        kept = keep_elsewhere(name, data)
        where = f"is kept in {kept}; move it to {folder}" if kept else "is lost: there is no room elsewhere"
        raise InvalidInput(f"cannot write to the folder {folder} ({reason}); the run {where}") from None


def write_tables(place: Place, setup: Setup, run: xr.Dataset) -> dict[str, Path]:
    """Write the losses, and the tracked values if there are any, as text: a row before each step.

    Of several seeds each has a column.

    **Arguments:**

    - `place`: where the run belongs, as `write_trajectory` returns it.
    - `setup`: what was trained, as `set_up` builds it.
    - `run`: the trajectory, as `train` returns it.

    **Returns:** the paths by what they hold: `loss` or `value` or both.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2", "--epoch", "20"])), "population")
    >>> run = training.train(setup, None)
    >>> place, remark = training.write_trajectory(Path("."), setup, run)
    >>> training.write_tables(place, setup, run)["loss"].name
    'attnM_head1_D2_R1_P5000_N32_seed10.txt'
    """
    taken = slice(0, setup.flags.epoch)
    loss = run["loss"].values[0, taken]
    columns = {"loss": loss if setup.beyond.seeds is None else run["loss"].values[:, taken].T}
    if setup.flags.testset_size:
        columns["loss"] = np.stack([loss, run[IN_WEIGHT].values[0, taken], run[IN_CONTEXT].values[0, taken]], axis=1)
    if setup.flags.track_value:
        columns["value"] = np.concatenate([loss[:, None], run[TRACKED].values[0, taken]], axis=1)
    return {kind: _write(place, path, _as_text(columns[kind])) for kind, path in place.tables.items()}


def write_plot(
    place: Place, setup: Setup, run: xr.Dataset, levels: Levels | None, course: Course | None, ending: str = "png"
) -> Path:
    """Draw the run and write the plot.

    **Arguments:**

    - `place`: where the run belongs, as `write_trajectory` returns it.
    - `setup`: what was trained, as `set_up` builds it.
    - `run`: the trajectory, as `train` returns it.
    - `levels`: the levels to draw, as `levels_of` returns them, or None.
    - `course`: the predicted course to draw, the first of what `course_of` returns, or None.
    - `ending`: the format, png, pdf or svg.

    **Returns:** the path.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2", "--epoch", "20"])), "population")
    >>> run = training.train(setup, None)
    >>> place, remark = training.write_trajectory(Path("."), setup, run)
    >>> training.write_plot(place, setup, run, training.levels_of(setup), None).name
    'attnM_head1_D2_R1_P5000_N32_seed10.png'
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, content = Figure(), io.BytesIO()
    FigureCanvasAgg(figure)
    draw(figure, setup, run, levels, course)
    # Without the date, the same run gives the same file.
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(ending)
    with rc_context({"svg.hashsalt": "stepwell"}):
        figure.savefig(content, dpi=150, format=ending, metadata=dates)
    return _write(place, place.plot(ending), content.getvalue())


def _as_text(columns: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savetxt(content, columns)
    return content.getvalue()


def _write(place: Place, path: Path, data: bytes) -> Path:
    try:
        return write_bytes(path, data)
    except OSError as error:
        raise InvalidInput(f"cannot write {path} ({why(error)}); the whole run is in {place.trajectory}") from None
