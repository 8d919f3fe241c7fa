"""Fig 3: what is read off a run at its drops: when they come, which head learns, where its key points."""

from typing import Any

import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float, Int

from ._fig03_flows import WINDOW
from ._fig03_settings import AFTER
from ._fig03_theory import HIGH, LOW
from ._rank_one import DIM

_AROUND = 6
"""Saved points on either side of a passage through which a spline is laid."""


def passage(
    time: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"], level: float
) -> tuple[float, slice] | None:
    """When a loss first comes down to a level, by a cubic spline, and the points about it; None if it does not."""
    below = np.flatnonzero(loss < level)
    if below.size == 0 or below[0] == 0:
        return None
    after = int(below[0])
    near = slice(max(after - _AROUND, 0), after + _AROUND)
    spline = scipy.interpolate.CubicSpline(time[near], loss[near] - level)
    return float(scipy.optimize.brentq(spline, time[after - 1], time[after])), near


def read_drops(run: xr.Dataset, predictions: xr.Dataset, vectors: Float[np.ndarray, "dim component"]) -> xr.Dataset:
    """Of each drop of one run, whose axis is `time`: its half, the newest head just after it, and that head's key.

    `key`: along the eigenvectors, relative to the component that is learned. `shared`: contributions of all heads to
    all components then. What does not come before the run's end is infinite, or not a number.
    """
    time, loss = run["time"].values, run["loss"].values
    steps = predictions["level"].values
    half, after = np.full(DIM, np.inf), np.full(DIM, np.inf)
    head, key = np.full(DIM, -1), np.full((DIM, DIM), np.nan)
    map_after = np.full((DIM, DIM), np.nan)
    for d in range(DIM):
        before, level = float(steps[d]), float(steps[d + 1])
        passed, done = (passage(time, loss, before - part * (before - level)) for part in (0.5, AFTER))
        if passed is not None:
            half[d] = passed[0]
        if done is None:
            continue
        after[d], near = done
        weights = weights_at(run, near, after[d])
        share = shares(weights, vectors)
        head[d] = int(share[:, d].argmax())
        along = weights["key"][head[d]] @ vectors
        key[d], map_after[d] = along / along[d], share.sum(axis=0)
    return xr.Dataset(
        {
            "half": ("drop", half),
            "after": ("drop", after),
            "head": ("drop", head),
            "key": (("drop", "component"), key),
            "map": (("drop", "component"), map_after),
        }
    )


def weights_at(run: xr.Dataset, near: slice, time: float) -> dict[str, Any]:
    """v, k and q of each head at a time, by cubic splines through saved points."""
    saved = run["time"].values[near]
    parts = {
        "value": run["value"].values[near, :, 0, DIM],
        "key": run["key"].values[near, :, 0, :DIM],
        "query": run["query"].values[near, :, 0],
    }
    return {name: scipy.interpolate.CubicSpline(saved, values)(time) for name, values in parts.items()}


def shares(weights: dict[str, Any], vectors: Float[np.ndarray, "dim component"]) -> Float[np.ndarray, "head component"]:
    r"""What each head contributes to each component of the map, $v_i (k_i^\top e_d)(q_i^\top e_d)$."""
    return weights["value"][:, None] * (weights["key"] @ vectors) * (weights["query"] @ vectors)


def in_order_of_learning(learners: Int[np.ndarray, " drop"], heads: int) -> list[int]:
    """Heads that learn, one for each drop that came, and then the others."""
    return [*(head for head in learners.tolist() if head >= 0), *(h for h in range(heads) if h not in learners)]


def aligned_keys(
    keys: Float[np.ndarray, "head dim"], one: xr.Dataset, ends: Float[np.ndarray, " component"]
) -> Float[np.ndarray, "component dim"]:
    """The eigenvectors of one run at their final lengths, with the signs of the `keys` of the heads that learn them."""
    vectors, learners = one["eigenvectors"].values.T, one["head"].values
    signs = np.where(learners >= 0, np.sign(np.sum(keys[learners] * vectors, axis=1)), 1.0)
    return signs[:, None] * vectors * ends[:, None]


def median(values: Float[np.ndarray, "..."]) -> float:
    """Of those that are numbers; if there are none, it is none."""
    numbers = values[~np.isnan(values)]
    return float(np.median(numbers)) if numbers.size else float("nan")


def rise(run: xr.Dataset, predictions: xr.Dataset, drop: int, head: int, half: float) -> float:
    """Measured over predicted time in which the value of a head goes from `LOW` to `HIGH` of its end, about a drop."""
    time = run["time"].values
    near = abs(time - half) < WINDOW * float(predictions["time_constant"][drop])
    value, end = abs(run["value"].values[near, head, 0, DIM]), float(predictions["value_end"][drop])
    crossed = [passage(time[near], -value, -part * end) for part in (LOW, HIGH)]
    times = [each[0] for each in crossed if each is not None]
    return (times[1] - times[0]) / float(predictions["rise"][drop]) if len(times) == 2 else float("nan")
