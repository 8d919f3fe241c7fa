"""What a run has learned: its effective map."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell.tasks import Batch
from stepwell.theory import LinearTask, linear
from stepwell.trajectory import model_settings

from ._compare import convention
from ._draw_axes import frame_places, loss_at, run_of, weight_axis
from ._effective_map import effective_map
from ._style import new_figure, styled


@checked
def draw_map(
    trajectory: xr.Dataset,
    task: LinearTask | None = None,
    *,
    batch: Batch | None = None,
    panels: int = 5,
    run: int = 0,
    title: str = "",
) -> Figure:
    r"""The effective map, with $\hat y = \beta^\top A x_q$, at several points of a run.

    **Arguments:**

    - `trajectory`: a run of attention with one output, or of another model that declares its effective map, from
      `descend`, `online` or `flow`.
    - `task`: the regression that it was trained on. With it, maps are drawn in the eigenvectors of the inputs'
      covariance, with attention divided by N, and the map that is the best at the end. By default maps are drawn
      as they are.
    - `batch`: sequences to measure the maps on, for a model that declares none (`analysis.effective_map`).
    - `panels`: how many points of the run are drawn: the first, the last, and between them some that follow the fall
      of the loss as well as time.
    - `run`: which run of an ensemble is drawn, counted from 0.
    - `title`: a title, by default none.

    **Returns:** the matplotlib figure.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> sw.analysis.draw_map(trajectory, task, panels=3).axes[3].get_title("left")
    'theory: the minimum'
    """
    panels = int(checks.number("panels", panels, least=2, most=50))
    one = run_of(trajectory, run)
    maps, goal = maps_of(one, task, batch)
    points = one[weight_axis(trajectory)].values.astype(float)
    places = frame_places(points, loss_at(one, points), panels)
    shown: list[tuple[str, np.ndarray]] = [(f"{_axis_name(trajectory)} = {points[p]:.4g}", maps[p]) for p in places]
    if goal is not None:
        shown.append(("theory: the minimum", goal))
    top = float(max(np.abs(each).max() for _, each in shown)) or 1.0
    with styled():
        figure = new_figure(1.9 * len(shown) + 0.7, 2.5)
        row = np.ravel(figure.subplots(1, len(shown), squeeze=False))
        for axes, (name, each) in zip(row, shown, strict=True):
            picture = draw_matrix(axes, each, top, in_eigenvectors=task is not None)
            axes.set_title(name, fontsize=9)
        figure.colorbar(picture, ax=list(row), shrink=0.75, pad=0.01)
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
    values, vectors = np.linalg.eigh(linear.input_moment(task))
    vectors = vectors[:, np.argsort(-values, kind="stable")]
    divided = model_settings(one).get("normalization") or "1/N"
    scale = 1.0 if divided == "1/N" else convention(one, task).scale  # pyright: ignore[reportArgumentType]
    return scale * vectors.T @ maps @ vectors, vectors.T @ linear.minimizer(task) @ vectors


def draw_matrix(axes: Any, matrix: np.ndarray, top: float, *, in_eigenvectors: bool) -> Any:
    """A matrix in colors, red where it is positive; the picture."""
    picture = axes.imshow(matrix, cmap="RdBu_r", vmin=-top, vmax=top)
    size = len(matrix)
    names = [f"$e_{{{d + 1}}}$" if in_eigenvectors else str(d + 1) for d in range(size)]
    ticks = list(range(size)) if size <= 8 else []
    axes.set_xticks(ticks, [names[d] for d in ticks])
    axes.set_yticks(ticks, [names[d] for d in ticks])
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    return picture


def _axis_name(trajectory: xr.Dataset) -> str:
    return "step" if weight_axis(trajectory) == "snapshot" else r"$t/\tau$"
