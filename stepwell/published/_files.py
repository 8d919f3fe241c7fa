"""What a training run leaves behind: loss files with the published names, the trajectory, the plot."""

from pathlib import Path

import numpy as np
import xarray as xr

from stepwell._errors import InvalidInput
from stepwell._files import write_whole
from stepwell.trajectory import save

from ._flags import Published
from ._plot import draw
from ._setup import IN_CONTEXT, IN_WEIGHT, TRACKED, Setup
from ._theory import Course, Levels


def write(folder: Path, setup: Setup, run: xr.Dataset, levels: Levels | None, course: Course | None) -> dict[str, Path]:
    """Write all files of a run, each whole or not at all.

    **Arguments:**

    - `folder`: the folder of the files, which exists. Files of the same names are replaced.
    - `setup`: what was trained, as `set_up` builds it.
    - `run`: the trajectory, as `train` returns it.
    - `levels`: the levels to draw in the plot, as `levels_of` returns them, or None.
    - `course`: the predicted course to draw in the plot, the first of what `course_of` returns, or None.

    **Returns:** the paths by what they hold: `trajectory`, `loss` or `value` or both, and `plot`.

    **Example:**

    >>> import argparse
    >>> from pathlib import Path
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2", "--epoch", "20"])), "population")
    >>> files = training.write(Path("."), setup, training.train(setup, None), training.levels_of(setup), None)
    >>> files["loss"].name, sorted(files)
    ('attnM_head1_D2_R1_P5000_N32_seed10.txt', ['loss', 'plot', 'trajectory'])
    """
    name = setup.flags.stem()
    try:
        files = {"trajectory": save(run, folder / f"{name}.nc")}
        for kind, (file, columns) in _columns(setup.flags, run).items():
            files[kind] = write_whole(folder / f"{file}.txt", lambda path, columns=columns: np.savetxt(path, columns))
        files["plot"] = write_whole(folder / f"{name}.png", lambda path: _save_plot(path, setup, run, levels, course))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"cannot write to the folder {folder} ({reason}); name another one with --out") from None
    return files


def _columns(flags: Published, run: xr.Dataset) -> dict[str, tuple[str, np.ndarray]]:
    """By kind, the name and the columns of each text file; a row before each step, none after the last."""
    taken = slice(0, flags.epoch)
    loss = run["loss"].values[0, taken]
    files = {}
    if flags.testset_size:
        curves = [loss, run[IN_WEIGHT].values[0, taken], run[IN_CONTEXT].values[0, taken]]
        files["loss"] = (flags.stem(), np.stack(curves, axis=1))
    elif not flags.track_value:
        files["loss"] = (flags.stem(), loss)
    if flags.track_value:
        values = run[TRACKED].values[0, taken]
        files["value"] = (f"{flags.name()}_value", np.concatenate([loss[:, None], values], axis=1))
    return files


def _save_plot(path: str, setup: Setup, run: xr.Dataset, levels: Levels | None, course: Course | None) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    FigureCanvasAgg(figure)
    draw(figure, setup, run, levels, course)
    figure.savefig(path, dpi=150)
