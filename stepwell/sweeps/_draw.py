"""A scalar of a study against one or two of its fields."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.text import nearest
from stepwell.analysis.style import GRAY, PALETTE, new_figure, styled

from ._study import DRAW

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = 8
"""Up to so many values of a second field are lines; more are the other axis of a heat map."""
_BAND = (0.1, 0.9)
"""Quantiles between which the band around a mean lies."""
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
def draw(result: xr.Dataset, scalar: str, x: str, y: str | None = None) -> "Figure":
    """Draw a scalar of a study against one field, or two; what else is varied is averaged over.

    Against one field the mean, with a band from the 10th to the 90th percentile (of a scalar that is 0 or 1, with the
    standard error of its share), and what the theory predicts for it,
    if that was measured too (dashed). A second field of up to eight values makes as many lines, one of more a heat map.
    Of a scalar in words, such as `regime` or `outcome`, the share of each word is drawn, or the most frequent one.

    **Arguments:**

    - `result`: what `sweep` returned.
    - `scalar`: the name of a scalar.
    - `x`: a field that is varied.
    - `y`: another one.

    **Returns:** the figure.

    **Example:**

    >>> import stepwell as sw
    >>> training = {"kind": "descent", "steps": 200}
    >>> experiment = sw.Experiment(task={"dim": 2}, model={"kind": "merged", "heads": 1}, training=training)
    >>> over = {"rate": {"from": 0.01, "to": 1.0, "count": 4, "spacing": "log"}, "seed": {"from": 0, "count": 5}}
    >>> result = sw.sweep(experiment, over, store="runs", progress=False)
    >>> figure = sw.sweeps.draw(result, "final_loss", "rate")
    >>> figure.axes[0].get_xlabel()
    'learning rate'
    """
    values = _variable(result, scalar)
    fields = [x] if y is None else [x, y]
    dims = [_dimension(result, field) for field in fields]
    if len(set(dims)) < len(dims):
        raise InvalidInput(f"{x} and {y} are varied together; give fields of two axes")
    with styled():
        figure = new_figure(6.0, 4.2)
        axes = figure.subplots()
        words = values.dtype.kind in "UO"
        lines = y is None or (not words and result.sizes[dims[1]] <= _LINES)
        if y is not None and not lines:
            _heat(figure, axes, result, values, scalar, fields, dims)
        elif words:
            _shares(axes, result, values, x, dims[0])
        else:
            _lines(axes, result, values, scalar, fields, dims)
        axes.set_xlabel(_label(x))
        if _is_logarithmic(result[x].values):
            axes.set_xscale("log")
        if x == "rate" and scalar == "regime":
            _critical_rates(axes, result)
        others = [f"{result.sizes[name]} values of {name}" for name in values.dims if name not in dims]
        if others:
            if words:
                how = "most frequent" if y is not None else "shares"
            else:
                spread = "share, with its standard error," if _is_share(values) else "mean and 10 % to 90 %"
                how = spread if lines else "mean"
            if not words and np.any(result["stored"].values & ~np.isfinite(values.values)):
                others[-1] += " (open marks: some runs have no value)" if lines else " (of runs that have a value)"
            axes.set_title(f"{how} over {', '.join(others)}", fontsize=9, color=GRAY)
    return figure


def _critical_rates(axes: Any, result: xr.Dataset) -> None:
    """Where the theory has catapults and cycles begin, if that was measured and is the same for all runs."""
    for name, label, side in (("catapult_rate", "catapults", "right"), ("cycle_rate", "cycles", "left")):
        rates = np.unique(result[name].values[np.isfinite(result[name].values)]) if name in result else np.zeros(0)
        if rates.size == 1:
            axes.axvline(float(rates[0]), color="black", linestyle="--", linewidth=1.3)
            place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "va": "bottom", "ha": side, "fontsize": 8}
            axes.annotate(f" theory: {label} ", (float(rates[0]), 0.02), color="white", **place)


def _variable(result: xr.Dataset, scalar: str) -> xr.DataArray:
    if scalar not in result.data_vars:
        names = sorted(str(name) for name in result.data_vars)
        raise InvalidInput(f"there is no scalar {scalar}; {nearest(scalar, names)}")
    return result[scalar]


def _dimension(result: xr.Dataset, field: str) -> str:
    varied = [str(name) for name, values in result.coords.items() if values.ndim == 1]
    if field not in varied:
        raise InvalidInput(f"{field} is not varied in this study; {nearest(field, varied)}")
    return str(result[field].dims[0])


def _lines(
    axes: Any, result: xr.Dataset, values: xr.DataArray, scalar: str, fields: list[str], dims: list[str]
) -> None:
    several = len(fields) > 1
    labels = result[fields[1]].values.tolist() if several else [None]
    predicted = result.get(scalar.replace("drop_", "predicted_")) if scalar.startswith("drop_") else None
    place, order = _ordered(result[fields[0]].values)
    for number, label in enumerate(labels):
        color = PALETTE[number % len(PALETTE)]
        chosen = {dims[1]: number} if several else {}
        seen = _flat(values.isel(chosen), dims[0])[order]
        _curve(axes, place, seen, color, None if label is None else _text(label), dims[0], _is_share(values))
        if predicted is not None:  # of the same runs, so that means can be compared
            both = np.where(np.isfinite(seen), _flat(predicted.isel(chosen), dims[0])[order], np.nan)
            there = np.isfinite(both).any(axis=1)
            label = "theory, same runs" if number == len(labels) - 1 else None
            middle = np.nanmean(both[there], axis=1)
            axes.plot(place[there], middle, "--", color="black", linewidth=1.2, label=label)
    _text_ticks(axes, result[fields[0]].values)
    axes.set_ylabel(_label(scalar, result[scalar].attrs.get("units", "")))
    if several or predicted is not None:
        axes.legend(title=_label(fields[1]) if several else None)
    finite = values.values[np.isfinite(values.values)]
    if finite.size and finite.min() > 0 and finite.max() > 30 * finite.min():
        axes.set_yscale("log")


def _curve(
    axes: Any, place: np.ndarray, flat: np.ndarray, color: str, label: str | None, dim: str, share: bool
) -> None:
    """The mean and a band over runs; an open mark where some runs have no value: diverged, or not reached."""
    finite = np.isfinite(flat)
    there = finite.any(axis=1)
    if not there.any():
        return
    if dim == DRAW:  # points that nothing joins
        across = np.broadcast_to(place[:, None], flat.shape)
        axes.plot(across[finite], flat[finite], ".", color=color, markersize=4, alpha=0.6, label=label)
        return
    whole = np.asarray(finite.all(axis=1))[there]
    place, flat = place[there], np.where(finite, flat, np.nan)[there]
    middle = np.nanmean(flat, axis=1)
    axes.plot(place, middle, color=color, label=label)
    axes.plot(place[whole], middle[whole], "o", color=color, markersize=4)
    axes.plot(place[~whole], middle[~whole], "o", color=color, markersize=5, markerfacecolor="white")
    if flat.shape[1] > 1:
        low, high = np.nanquantile(flat, _BAND, axis=1)
        if share:
            error = np.sqrt(middle * (1 - middle) / np.isfinite(flat).sum(axis=1))
            low, high = middle - error, middle + error
        axes.fill_between(place, low, high, color=color, alpha=0.2, linewidth=0)


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
    axes.stackplot(
        place, *parts, labels=words, colors=[PALETTE[n % len(PALETTE)] for n in range(len(words))], alpha=0.85
    )
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of runs")
    _text_ticks(axes, result[field].values)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _heat(
    figure: Any, axes: Any, result: xr.Dataset, values: xr.DataArray, scalar: str, fields: list[str], dims: list[str]
) -> None:
    from matplotlib.colors import ListedColormap

    flat = values.transpose(*dims[::-1], ...).values.reshape(result.sizes[dims[1]], result.sizes[dims[0]], -1)
    (first, columns), (second, rows) = (_ordered(result[field].values) for field in fields)
    flat, place = flat[rows][:, columns], (_edges(first), _edges(second))
    if values.dtype.kind in "UO":
        words = _words(values)
        counts = np.stack([(flat == word).sum(axis=-1) for word in words])
        frequent = np.where(counts.sum(axis=0) > 0, counts.argmax(axis=0), np.nan)
        colors = ListedColormap([PALETTE[number % len(PALETTE)] for number in range(len(words))])
        mesh = axes.pcolormesh(*place, frequent, cmap=colors, vmin=-0.5, vmax=len(words) - 0.5, rasterized=True)
        bar = figure.colorbar(mesh, ax=axes, ticks=range(len(words)))
        bar.ax.set_yticklabels(words)
    else:
        finite = np.where(np.isfinite(flat), flat, np.nan)
        there = np.isfinite(finite).sum(axis=-1)
        mean = np.where(there > 0, np.nansum(finite, axis=-1) / np.maximum(there, 1), np.nan)
        mesh = axes.pcolormesh(*place, mean, cmap="viridis", rasterized=True)
        figure.colorbar(mesh, ax=axes, label=_label(scalar, values.attrs.get("units", "")))
        axes.set_facecolor("#dddddd")
    _text_ticks(axes, result[fields[0]].values)
    labels = result[fields[1]].values
    if _is_logarithmic(labels):
        axes.set_yscale("log")
    elif labels.dtype.kind in "UO":
        axes.set_yticks(range(len(labels)), [str(value) for value in labels])
    axes.set_ylabel(_label(fields[1]))


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


def _text_ticks(axes: Any, values: np.ndarray) -> None:
    if values.dtype.kind in "UO":
        axes.set_xticks(range(len(values)), [str(value) for value in values], rotation=20, ha="right")


def _is_logarithmic(values: np.ndarray) -> bool:
    """Whether values are spread over more than a decade and about evenly in their logarithm."""
    if values.dtype.kind not in "fiu" or len(values) < 3 or not np.all(values > 0):
        return False
    if values.max() < 10 * values.min():
        return False
    gaps = np.diff(np.log(np.sort(values)))
    return bool(gaps.max() < 4 * np.median(gaps) + 1e-12)


def _label(name: str, unit: str = "") -> str:
    said = _LABELS.get(name, name.replace("_", " "))
    return f"{said} ({unit.replace('t/tau', 't/τ')})" if unit else said


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
