"""The values behind a claim, for a reader: a small picture, or in words where they are few."""

import math
from collections import Counter
from typing import Any, NamedTuple

from ._words import number

_BINS = 44
_MANY = 40  # values from which on a range of 90 % is given
_DECADES = 30.0  # a ratio of values from which on the axis is logarithmic
_FAILING = 4  # how many values that do not pass are named
_FEW = 5  # different integers that are counted in words
_FAR = 3.0  # tolerances from the prediction; values that are further off stand at the end of the axis
_EDGE = 3.0  # per cent of the axis left free at either end


class Bar(NamedTuple):
    """Values in a bin of the axis: its place and height in per cent, what they belong to, and whether all pass."""

    place: float
    height: float
    names: str
    passed: bool


class Distribution(NamedTuple):
    """The values of a claim.

    **Arguments:**

    - `words`: the values in words, such as "median 1, from 0.9 to 1.2".
    - `scaled`: whether they are (measured − predicted)/tolerance, as where each has a prediction of its own.
    - `logarithmic`: whether the axis is.
    - `bars`, `allowed`, `predicted`: the picture, in per cent of the axis: a histogram, the interval that is allowed,
      and the prediction. Without bars there is no picture.
    - `failing`: the values that do not pass, by what they belong to.
    """

    words: str
    scaled: bool = False
    logarithmic: bool = False
    bars: tuple[Bar, ...] = ()
    allowed: tuple[float, float] = (0.0, 100.0)
    predicted: float | None = None
    failing: str = ""


_Drawn = tuple[bool, tuple[Bar, ...], tuple[float, float], float | None]


def distribution(claim: dict[str, Any]) -> Distribution | None:
    """The values of a claim of `claims.json`; None for one value."""
    values = [one for one in claim["values"] if one["measured"] is not None and one["predicted"] is not None]
    if len(claim["values"]) < 2 or not values:
        return None
    failing = [_name(number(one["measured"], 3), one) for one in claim["values"] if not one["passed"]]
    more = [f"{len(failing) - _FAILING} more"] if len(failing) > _FAILING else []
    outside = "; ".join([*failing[:_FAILING], *more])
    measured = [one["measured"] for one in values]
    if all(one["measured"] in (0, 1) and (one["predicted"], one["tolerance"]) == (1, 0) for one in values):
        return Distribution("", failing=outside)  # whether each holds: the fraction says all
    shared = len({(one["predicted"], one["tolerance"]) for one in values}) == 1
    if all(value == round(value) for value in measured) and len(set(measured)) <= _FEW:
        counts = Counter((one["measured"], "" if shared else f" for {number(one['predicted'])}") for one in values)
        words = (
            f"{number(value)}{wanted} ({count} of {len(values)})" for (value, wanted), count in sorted(counts.items())
        )
        return Distribution(", ".join(words), failing=outside)
    if not shared and not all(one["tolerance"] for one in values):
        return Distribution(_summary(measured), failing=outside)
    center, width = (values[0]["predicted"], values[0]["tolerance"]) if shared else (0.0, 1.0)
    places = measured if shared else [(one["measured"] - one["predicted"]) / one["tolerance"] for one in values]
    return Distribution(
        _summary(places), not shared, *_drawn(claim["relation"], center, width, places, values), outside
    )


def _drawn(relation: str, center: float, width: float, places: list[float], values: list[dict[str, Any]]) -> _Drawn:
    """The picture: whether its axis is logarithmic, bars, the allowed interval and the prediction."""
    low = -math.inf if relation == "<=" else center - width
    high = math.inf if relation == ">=" else center + width
    if relation == "=" and width > 0:
        places = [min(max(each, center - _FAR * width), center + _FAR * width) for each in places]
    ends = [*places, *(end for end in (low, high, center) if math.isfinite(end))]
    positive = [end for end in ends if end > 0]
    logarithmic = relation == "<=" and min(places) > 0 and max(positive) > _DECADES * min(positive)
    scale = math.log if logarithmic else float
    first, last = (scale(end) for end in ((min(positive), max(positive)) if logarithmic else (min(ends), max(ends))))

    def place(value: float) -> float:
        if math.isinf(value) or logarithmic and value <= 0:
            return 0.0 if value <= 0 else 100.0
        part = (scale(value) - first) / (last - first) if last > first else 0.5
        return _EDGE + (100 - 2 * _EDGE) * part

    bins: dict[int, list[dict[str, Any]]] = {}
    for at, one in zip(places, values, strict=True):
        bins.setdefault(round(place(at) / 100 * _BINS), []).append(one)
    most = max(map(len, bins.values()))
    bars = [
        Bar(
            100 * where / _BINS,
            30 + 70 * len(mine) / most,
            "; ".join(_name(number(one["measured"], 4), one) for one in mine[:_FAILING])
            + (" …" * (len(mine) > _FAILING)),
            all(one["passed"] for one in mine),
        )
        for where, mine in sorted(bins.items())
    ]
    return logarithmic, tuple(bars), (place(low), place(high)), None if logarithmic and center <= 0 else place(center)


def _name(value: str, one: dict[str, Any]) -> str:
    return value if one["label"] is None else f"{one['label']}: {value}"


def _summary(values: list[float]) -> str:
    """The median and the range of values, and of many the range of 90 % too."""
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    ends = [number(ordered[place], 3) for place in (0, -1)]
    words = f"median {number(middle, 3)}, from {ends[0]} to {ends[1]}"
    if len(ordered) < _MANY:
        return words
    cut = int(0.05 * (len(ordered) - 1))
    return f"{words}, 90 % of them from {number(ordered[cut], 3)} to {number(ordered[-1 - cut], 3)}"
