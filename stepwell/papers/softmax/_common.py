"""What figures of this paper share: settings as shown, variables of data sets, what claims compare, panels."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float, Int

from stepwell.analysis.style import GRAY, PALETTE, new_figure

DEVIATIONS = 4.0
"""Standard errors allowed of each of some twenty numbers: one in some 16,000 falls outside."""
EXACT_ROUTES = "objectives.Exact and theory.softmax.exact_optimum, both from 1/Z = ∫exp(−tZ)dt"
"""Who says where training on the exact loss ends: two computations that begin with the same integral."""
CHANCE = 0.0027
"""How often a slope is further off than allowed: as three standard errors of a Gaussian."""


def named_settings(settings: Any) -> dict[str, Any]:
    """All fields of the settings of a figure, as its report shows them: common ones by their symbols."""
    symbols = {"dim": "dimension d", "dims": "dimensions d", "context": "context length L", "contexts": "contexts L"}
    names = {**symbols, "noise": "noise σ²", "embedding": "width of a head d_e"}
    return {names.get(name, name): value for name, value in asdict(settings).items()}


class Slope(NamedTuple):
    """A slope by least squares, and the half of its interval by Student's t: it misses the truth once in 370 times."""

    value: float
    allowed: float


def slope(x: Float[np.ndarray, " run"], y: Float[np.ndarray, " run"], others: Float[np.ndarray, " other"]) -> Slope:
    """Through independent runs of at least two different x. Their scatter is that of the y of other runs at one x."""
    centered = x - x.mean()
    square = centered @ centered
    error = others.std(ddof=1) / np.sqrt(square)
    return Slope(float(centered @ y / square), float(scipy.stats.t.ppf(1 - CHANCE / 2, others.size - 1) * error))


def over(dims: str, **variables: Any) -> dict[str, tuple[list[str], Any]]:
    """Variables of a data set along these dimensions, as in "run time"."""
    return {name: (dims.split(), values) for name, values in variables.items()}


def by_size(sizes: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Dimension and context length as coordinates of `size`."""
    return over("size", **dict(zip(("dim", "context"), np.array(sizes).T, strict=True)))


def stacked(rows: Iterable[dict[str, Any]], **coords: Iterable[Any]) -> xr.Dataset:
    """Variables of data sets, one for each coordinate of the dimension that is named, as those of one data set."""
    ((dim, values),) = coords.items()
    return xr.concat([xr.Dataset(row) for row in rows], dim=dim).assign_coords({dim: list(values)})


def sparser_steps(last: int, count: int) -> Int[np.ndarray, " step"]:
    """From 0 on, ever further apart."""
    return np.unique(np.concatenate([[0], np.geomspace(1, last, count).astype(int)]))


_LABELS = {
    "run": "seed",
    "dim": "d =",
    "context": "L =",
    "length": "L' =",
    "ratio": "d/L =",
    "heads": "H =",
    "flatness": "|ω|² =",
    "square": "a² =",
    "a": "a =",
    "delta": "δ =",
}
"""What stands for a coordinate before its value, in what a claim says its values belong to."""


def labeled(values: xr.DataArray, **words: str) -> xr.DataArray:
    """Values of a claim, with their coordinates named as it shall show them, the seed first: "seed 120, d = 10"."""
    coords = {name: values.coords[name] for name in sorted(values.coords, key=lambda name: name != "run")}
    names = {name: word for name, word in {**_LABELS, **words}.items() if name in coords}
    return xr.DataArray(values.variable, coords).rename(names)


def compared(measured: xr.DataArray, predicted: Any = 0.0, tolerance: Any = 0.0, **words: str) -> dict[str, Any]:
    """What a claim about each of several values compares; what is predicted and allowed may have their dimensions."""
    like = xr.zeros_like(measured, float)
    rows = ((like + given).values.ravel() for given in (predicted, tolerance))
    return {"measured": labeled(measured, **words), **dict(zip(("predicted", "tolerance"), rows, strict=True))}


def worst(measured: xr.DataArray, predicted: Any, tolerance: Any) -> dict[str, Any]:
    """What a claim of equality at every point compares: of each `run` the point furthest off, in its tolerance."""
    arrays = xr.broadcast(measured.expand_dims("single"), *(xr.DataArray(given) for given in (predicted, tolerance)))
    others = [dim for dim in arrays[0].dims if dim != "run"]
    values, wanted, allowed = (one.stack(point=others, create_index=False).transpose("run", "point") for one in arrays)
    # What is not a number is the worst of all.
    off = np.nan_to_num(abs(values - wanted).values / allowed.values, nan=np.inf)
    if not off.size:
        return {"measured": []}
    place = xr.DataArray(off.argmax(axis=1), dims="run")
    return compared(*(one.isel(point=place) for one in (values, wanted, allowed)))


def two_rows(
    width: float, height: float, above: Sequence[float], below: Sequence[float]
) -> tuple[matplotlib.figure.Figure, list[Any]]:
    """A figure, and its panels in two rows of these relative widths."""
    figure = new_figure(width, height)
    rows: Any = figure.subfigures(2, 1, height_ratios=(1.1, 1))
    panels = [row.subplots(1, len(wide), width_ratios=wide) for row, wide in zip(rows, (above, below), strict=True)]
    return figure, [axes for row in panels for axes in row]


def finish(axes: Any, title: str, x: str, y: str, *, legend: str = "", **options: Any) -> None:
    """The words of a panel, with a legend in smaller print if it has a place."""
    axes.set(**options, title=title, xlabel=x, ylabel=y)
    if legend:
        axes.legend(loc=legend, fontsize=8.5)


def lines(axes: Any, x: Any, rows: Any, label: str, **style: Any) -> None:
    """A line for each row, all under one label."""
    for number, row in enumerate(rows):
        axes.plot(x, row, label=None if number else label, **style)


def note(axes: Any, words: str, at: tuple[Any, Any], offset: tuple[float, float], **style: Any) -> None:
    """Words at a point, moved by so many points of print."""
    axes.annotate(words, at, xytext=offset, textcoords="offset points", **style)


def only_ticks(axes: Any, values: Any) -> None:
    """Ticks of x at these values alone."""
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xticks([], minor=True)


def against_batches(
    axes: Any, batches: Int[np.ndarray, " run"], series: dict[str, Float[np.ndarray, " run"]], **words: str
) -> None:
    """Values by their labels against the batch size of each run, with dashed lines for the law 1/batch."""
    every = np.unique(batches)
    for (label, values), marker, color in zip(series.items(), "osD^", PALETTE, strict=False):
        axes.plot(batches, values, marker, color=color, markersize=5, fillstyle="none", label=label)
        if values.all():  # a block of a single number has nothing off the structure
            first = np.exp(np.log(values[batches == every[0]]).mean())
            axes.plot(every, first * every[0] / every, "--", color=color, linewidth=1.0)
    axes.plot([], [], "--", color=GRAY, linewidth=1.0, label="1/batch")
    axes.set(xscale="log", yscale="log", xlabel="sequences in a batch", **words)
    only_ticks(axes, every)
    axes.legend(loc="lower left", fontsize=8.5)
