"""A scalar of a study against one or two of its fields."""

import re
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.text import nearest
from stepwell.analysis.style import GRAY, PALETTE, new_figure, styled

from ._study import DRAW

_LINES = 8  # up to so many values of a second field are lines; more are the other axis of a heat map
_BAND = (10, 90)  # percentiles between which the band around a median lies
_BEYOND = re.compile("drop_[0-9]+|[a-z]+_loss")
"""Scalars that a run lacks because it has not come so far, or has diverged: its value counts as above all others."""
_SLANTED = {"rotation": 20, "ha": "right"}
_PARTLY = "theory, of runs that have a prediction"
_LABELS = {
    "rate": "learning rate",
    "scale": "initialization scale",
    "noise": "variance of the label noise",
    "context": "context pairs",
    "dim": "dimension",
    "final_loss": "loss at the end",
    "first_loss": "loss at initialization",
    "largest_loss": "largest loss",
    "shared": "fraction of runs with two tasks on one head",
}


@checked
def draw(result: xr.Dataset, scalar: str, x: str, y: str | None = None, *, ax: Axes | None = None) -> Any:
    """Draw a scalar of a study against one field, or two, as its median over what else is varied.

    Against one field the median, with a band from the 10th to the 90th percentile (of a scalar that is 0 or 1 its
    share, with the standard error), and, dashed, the median of what the theory predicts, if that was measured too. A
    second field of up to eight values makes as many lines, one of more a heat map. Of a scalar in words, such as
    `regime`, the share of each word is drawn, or the most frequent one.

    A run that has not dropped by its end, or has diverged, is above all others in the order of drop times and losses.
    So a median is drawn where more than half of the runs have a value, and a band where both of its ends are known.
    Below the lines is the fraction of runs that have a value, unless all do.

    **Arguments:**

    - `result`: what `sweep` returned.
    - `scalar`: the name of a scalar.
    - `x`: a field that is varied.
    - `y`: another one.
    - `ax`: the matplotlib axes to draw on, by default those of a new figure; the fraction of runs is not drawn there.

    **Returns:** the figure.

    **Example:**

    >>> training = {"kind": "descent", "steps": 200}
    >>> experiment = sw.Experiment(task={"dim": 2}, model={"kind": "merged", "heads": 1}, training=training)
    >>> over = {"rate": {"from": 0.01, "to": 1.0, "count": 4, "spacing": "log"}, "seed": {"from": 0, "count": 5}}
    >>> result = sw.sweep(experiment, over, store="runs", progress=False)
    >>> figure = sw.sweeps.draw(result, "final_loss", "rate")
    >>> figure.axes[0].get_xlabel()
    'learning rate'
    """
    if scalar not in result.data_vars:
        raise InvalidInput(f"there is no scalar {scalar}; {nearest(scalar, sorted(map(str, result.data_vars)))}")
    values = result[scalar]
    fields = [x] if y is None else [x, y]
    dims = [_dimension(result, field) for field in fields]
    if len(set(dims)) < len(dims):
        raise InvalidInput(f"{x} and {y} are varied together; give fields of two axes")
    with styled():
        words = values.dtype.kind in "UO"
        lines = y is None or (not words and result.sizes[dims[1]] <= _LINES)
        others = [f"{result.sizes[name]} values of {name}" for name in values.dims if name not in dims]
        missing = 0 if words else int(np.sum(result["stored"].values & ~np.isfinite(values.values)))
        below = None
        if ax is None and missing and lines and others and dims[0] != DRAW:
            axes, below = new_figure(6.0, 4.2).subplots(2, 1, sharex=True, height_ratios=(4, 1))
            below.set(ylabel="with a value", ylim=(-0.05, 1.05), yticks=(0, 0.5, 1))
        else:
            axes = new_figure(6.0, 4.2).subplots() if ax is None else ax
        if y is not None and not lines:
            _heat(axes, result, values, fields, dims)
        elif words:
            _shares(axes, result, values, x, dims[0])
        else:
            _lines(axes, below, result, values, fields, dims)
        (axes if below is None else below).set_xlabel(_label(x))
        if _is_logarithmic(result[x].values):
            axes.set_xscale("log")
        if x == "rate" and scalar == "regime":
            _critical_rates(axes, result)
        if words:
            how = "most frequent" if y is not None else "shares"
        else:
            spread = "share, with its standard error," if _is_share(values) else "median and 10 % to 90 %"
            how = "each run" if dims[0] == DRAW and lines else spread if lines else spread.split()[0].rstrip(",")
        notes = [f"{how} over {', '.join(others)}"] if others else []
        if missing:
            notes.append(f"{missing} of {int(result['stored'].sum())} runs have no value")
            notes += [] if lines else ["gray: half of them or more"]
        axes.set_title("; ".join(notes), fontsize=9, color=GRAY)
    return axes.figure


class _Summary(NamedTuple):
    """What is drawn of the runs at each place: not a number where it is not known."""

    low: np.ndarray
    middle: np.ndarray
    high: np.ndarray
    fraction: np.ndarray  # of the runs that are stored, those that have a value


def _summarized(values: np.ndarray, stored: np.ndarray, *, beyond: bool, share: bool = False) -> _Summary:
    """The median and the band of (place, run); missing values are above all others, if they are `beyond` them."""
    rows = []
    for own in (row[there] for row, there in zip(values, stored, strict=True)):
        finite = np.isfinite(own)
        fraction = finite.mean() if own.size else np.nan
        ranked = np.sort(np.where(finite, own, np.inf) if beyond else own[finite])
        if not fraction > 0.5:
            low = middle = high = np.nan
        elif share:
            middle = ranked.mean()
            low, high = middle + np.array([-1, 1]) * np.sqrt(middle * (1 - middle) / ranked.size)
        else:
            low, middle, high = (_percentile(ranked, part) for part in (_BAND[0], 50, _BAND[1]))
        rows.append((low, middle, high, fraction))
    return _Summary(*np.array(rows).T)


def _percentile(ranked: np.ndarray, percent: int) -> float:
    """A percentile of sorted values, interpolated as NumPy does; not a number where that takes an infinite one."""
    place, rest = divmod(percent * (ranked.size - 1), 100)
    low, high = ranked[place], ranked[place + (rest > 0)]
    return float(low + rest / 100 * (high - low)) if np.isfinite(high) else np.nan


def _critical_rates(axes: Any, result: xr.Dataset) -> None:
    """Where the theory has catapults and cycles begin, if that was measured and is the same for all runs."""
    for name, label, side in (("catapult_rate", "catapults", "right"), ("cycle_rate", "cycles", "left")):
        rates = np.unique(result[name].values[np.isfinite(result[name].values)]) if name in result else np.zeros(0)
        if rates.size == 1:
            axes.axvline(float(rates[0]), color="black", linestyle="--", linewidth=1.3)
            place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "va": "bottom", "ha": side, "fontsize": 8}
            axes.annotate(f" theory: {label} ", (float(rates[0]), 0.02), color="white", **place)


def _dimension(result: xr.Dataset, field: str) -> str:
    varied = [str(name) for name, values in result.coords.items() if values.ndim == 1]
    if field not in varied:
        raise InvalidInput(f"{field} is not varied in this study; {nearest(field, varied)}")
    return str(result[field].dims[0])


def _lines(axes: Any, below: Any, result: xr.Dataset, values: xr.DataArray, fields: list[str], dims: list[str]) -> None:
    scalar = str(values.name)
    several = len(fields) > 1
    labels = result[fields[1]].values.tolist() if several else [None]
    predicted = result.get(scalar.replace("drop_", "predicted_")) if scalar.startswith("drop_") else None
    place, order = _ordered(result[fields[0]].values)
    for number, (label, color) in enumerate(zip(labels, _colors(labels), strict=True)):
        chosen = {dims[1]: number} if several else {}
        seen, stored = (_flat(each.isel(chosen), dims[0])[order] for each in (values, result["stored"]))
        text = None if label is None else _text(label)
        if dims[0] == DRAW:  # points that nothing joins
            across, finite = np.broadcast_to(place[:, None], seen.shape), np.isfinite(seen)
            axes.plot(across[finite], seen[finite], ".", color=color, markersize=4, alpha=0.6, label=text)
        else:
            beyond = _BEYOND.fullmatch(scalar) is not None
            summary = _summarized(seen, stored, beyond=beyond, share=_is_share(values))
            _curve(axes, place, summary, color, text)
            if below is not None:
                below.plot(place, summary.fraction, ".-", color=color, linewidth=1, markersize=4)
        if predicted is not None:
            theory = _summarized(_flat(predicted.isel(chosen), dims[0])[order], stored, beyond=False)
            words = "theory" if np.all(np.isfinite(predicted.values[result["stored"].values])) else _PARTLY
            label = words if number == len(labels) - 1 else None
            axes.plot(place, theory.middle, "--", color="black", linewidth=1.2, label=label)
    _text_ticks(axes.xaxis, result[fields[0]].values, **_SLANTED)
    axes.set_ylabel(_label(scalar, values.attrs.get("units", "")))
    if several or predicted is not None:
        axes.legend(title=_label(fields[1]) if several else None)
    finite = values.values[np.isfinite(values.values)]
    if finite.size and finite.min() > 0 and finite.max() > 30 * finite.min():
        axes.set_yscale("log")


def _curve(axes: Any, place: np.ndarray, summary: _Summary, color: str, label: str | None) -> None:
    """The median and a band over runs; an open mark where some runs have no value: diverged, or not reached."""
    whole = summary.fraction == 1
    axes.plot(place, summary.middle, color=color, label=label)
    axes.plot(place[whole], summary.middle[whole], "o", color=color, markersize=4)
    axes.plot(place[~whole], summary.middle[~whole], "o", color=color, markersize=5, markerfacecolor="white")
    if not np.array_equal(summary.low, summary.high, equal_nan=True):
        axes.fill_between(place, summary.low, summary.high, color=color, alpha=0.2, linewidth=0)


def _is_share(values: Any) -> bool:
    """Whether all are 0 or 1."""
    finite = np.asarray(values)[np.isfinite(values)]
    return bool(finite.size) and bool(np.isin(finite, (0, 1)).all())


def _flat(values: xr.DataArray, dim: str) -> np.ndarray:
    """Values along an axis, and of all other axes together."""
    return values.transpose(dim, ...).values.reshape(values.sizes[dim], -1)


def _shares(axes: Any, result: xr.Dataset, values: xr.DataArray, field: str, dim: str) -> None:
    words = _words(values)
    place, order = _ordered(result[field].values)
    flat = _flat(values, dim)[order]
    there = np.maximum((flat != "").sum(axis=1), 1)
    parts = [(flat == word).sum(axis=1) / there for word in words]
    axes.stackplot(place, *parts, labels=words, colors=_colors(words), alpha=0.85)
    axes.set(ylim=(0, 1), ylabel="share of runs")
    _text_ticks(axes.xaxis, result[field].values, **_SLANTED)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _heat(axes: Any, result: xr.Dataset, values: xr.DataArray, fields: list[str], dims: list[str]) -> None:
    from matplotlib.colors import ListedColormap

    flat = values.transpose(*dims[::-1], ...).values.reshape(result.sizes[dims[1]], result.sizes[dims[0]], -1)
    (first, columns), (second, rows) = (_ordered(result[field].values) for field in fields)
    flat, place = flat[rows][:, columns], (_edges(first), _edges(second))
    if values.dtype.kind in "UO":
        words = _words(values)
        counts = np.stack([(flat == word).sum(axis=-1) for word in words])
        frequent = np.where(counts.sum(axis=0) > 0, counts.argmax(axis=0), np.nan)
        colors = ListedColormap(_colors(words))
        mesh = axes.pcolormesh(*place, frequent, cmap=colors, vmin=-0.5, vmax=len(words) - 0.5, rasterized=True)
        bar = axes.figure.colorbar(mesh, ax=axes, ticks=range(len(words)))
        bar.ax.set_yticklabels(words)
    else:
        stored = result["stored"].transpose(*dims[::-1], ...).values.reshape(flat.shape)[rows][:, columns]
        cells = (each.reshape(-1, each.shape[-1]) for each in (flat, stored))
        beyond = _BEYOND.fullmatch(str(values.name)) is not None
        middle = _summarized(*cells, beyond=beyond, share=_is_share(values)).middle.reshape(flat.shape[:-1])
        mesh = axes.pcolormesh(*place, middle, cmap="viridis", rasterized=True)
        axes.figure.colorbar(mesh, ax=axes, label=_label(str(values.name), values.attrs.get("units", "")))
        axes.set_facecolor("#dddddd")
    _text_ticks(axes.xaxis, result[fields[0]].values, **_SLANTED)
    labels = result[fields[1]].values
    if _is_logarithmic(labels):
        axes.set_yscale("log")
    _text_ticks(axes.yaxis, labels)
    axes.set_ylabel(_label(fields[1]))


def _colors(things: list[Any]) -> list[str]:
    return [PALETTE[number % len(PALETTE)] for number in range(len(things))]


def _words(values: xr.DataArray) -> list[str]:
    known = ["monotone", "catapult", "cycles", "finished", "diverged", "solver failed"]
    seen = {str(word) for word in np.unique(values.values)} - {""}
    return [word for word in known if word in seen] + sorted(seen - set(known))


def _ordered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where values stand on an axis, in rising order, and that order; words stand one after another."""
    place = np.arange(len(values)) if values.dtype.kind in "UO" else values
    order = np.argsort(place, kind="stable")
    return place[order], order


def _edges(centers: np.ndarray) -> np.ndarray:
    """The edges of cells around values that rise: half-way between them, on the axis as it is drawn."""
    if centers.size == 1:
        return centers[0] + np.array([-0.5, 0.5])
    logarithmic = _is_logarithmic(centers)
    places = np.log(centers) if logarithmic else centers.astype(float)
    inner = (places[1:] + places[:-1]) / 2
    edges = np.concatenate([[2 * places[0] - inner[0]], inner, [2 * places[-1] - inner[-1]]])
    return np.exp(edges) if logarithmic else edges


def _text_ticks(axis: Any, values: np.ndarray, **how: Any) -> None:
    if values.dtype.kind in "UO":
        axis.set_ticks(range(len(values)), [str(value) for value in values], **how)


def _is_logarithmic(values: np.ndarray) -> bool:
    """Whether values are spread over more than a decade and about evenly in their logarithm."""
    if values.dtype.kind not in "fiu" or len(values) < 3 or values.min() <= 0 or values.max() < 10 * values.min():
        return False
    gaps = np.diff(np.log(np.sort(values)))
    return bool(gaps.max() < 4 * np.median(gaps) + 1e-12)


def _label(name: str, unit: str = "") -> str:
    said = _LABELS.get(name, name.replace("_", " "))
    return f"{said} ({unit.replace('t/tau', 't/τ')})" if unit else said


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
