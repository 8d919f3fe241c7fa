"""ReLU units and orthogonal inputs: small weights turn to one of a few rays, and units on one ray act as one."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import IntegrationFailed
from ..linear import Drops
from ._narrow import Field, Units
from ._schedule import TOO_LARGE, UnitDrop, by_gain, schedule

_ORTHOGONAL = 1e-10
"""Cosines below this are rounding."""


class _Moments(NamedTuple):
    cross: Float[np.ndarray, "output point"]
    gram: Float[np.ndarray, "point point"]
    label_power: float


@checked
def ray_schedule(
    inputs: Float[np.ndarray, "point dim"],
    labels: Float[np.ndarray, " point"],
    outer: Float[np.ndarray, " unit"],
    inner: Float[np.ndarray, "unit dim"],
    *,
    until: float = np.inf,
) -> Drops[UnitDrop]:
    r"""Return the drops of a ReLU network of one output on orthogonal inputs, from small initial weights.

    With $p_m = u^\top x_m/|x_m|$ and $d_m = y_m|x_m|/P$ for P points a small unit follows
    $\tau\dot v = \sum_{p_m > 0} d_mp_m$, $\tau\dot p_m = vd_m$ where $p_m > 0$: linear equations, until a $p_m$ comes
    down to zero, and stays there. In the end it grows along a ray, of the points A that are left, as $a\,e^{|d_A|t}$ in
    v and in $p_A = a\,e^{|d_A|t}\,|d_A|^{-1}d_A$. Units on one ray act as one with $a^2 = \sum_i a_i^2$, and these few
    are integrated: for the drops as in `unit_schedule`, and for their times all together, as rays that share a point
    slow each other. It is exact as initial weights become small.

    **Arguments:**

    - `inputs`: $x_m$, a point a row, at right angles to each other.
    - `labels`: $y_m$, of one output.
    - `outer`: v of each unit.
    - `inner`: u of each unit, a unit a row.
    - `until`: the time of the last drop that is asked for, in units of τ.

    **Returns:** the `UnitDrop`s in order of time, each with the largest unit on its ray; their `reason` says why there
    are no more, and is empty if all is learned.

    **Example:** two points, and labels of either sign.

    >>> rng = np.random.default_rng(0)
    >>> initial = 1e-4 * rng.normal(size=50), 1e-4 * rng.normal(size=(50, 2))
    >>> drops = sw.theory.units.ray_schedule([[-1.0, 2.0], [1.0, 0.5]], [1.0, -1.0], *initial)
    >>> [round(drop.time, 2) for drop in drops], [round(drop.level_after, 3) for drop in drops]
    ([6.32, 14.03], [0.5, 0.0])
    """
    for name, array in {"inputs": inputs, "labels": labels, "outer": outer, "inner": inner}.items():
        checks.numbers_in(name, array)
    lengths = np.linalg.norm(inputs, axis=1)
    if lengths.size == 0 or not np.all(lengths > 0):
        raise InvalidInput("some of the inputs are zero, or there are none; give inputs of a positive length")
    directions = inputs / lengths[:, None]
    cosine = np.abs(directions @ directions.T - np.eye(lengths.size)).max()
    if cosine > _ORTHOGONAL:
        raise InvalidInput(
            f"two inputs have a cosine of {cosine:.2g}; the drops of ReLU networks are predicted for inputs at right "
            "angles to each other"
        )
    drive = labels * lengths / labels.size
    rays: dict[tuple[bytes, bool], list[tuple[int, float]]] = {}
    for unit, (v, u) in enumerate(zip(outer.tolist(), inner @ directions.T, strict=True)):
        active, size = _ray(v, u, drive)
        if size != 0:
            rays.setdefault((active.tobytes(), size > 0), []).append((unit, size))
    rows, open_, largest = [], [], []
    for (active, positive), members in rays.items():
        reached = np.frombuffer(active, bool)
        along = np.where(reached, np.abs(drive), 0.0) / np.linalg.norm(drive[reached])
        size = np.sqrt(sum(one**2 for _, one in members))
        rows.append(size * np.append(1.0 if positive else -1.0, along))
        open_.append(np.append(1.0, reached))
        largest.append(max(members, key=lambda member: abs(member[1]))[0])
    moments = _Moments(drive[None], np.diag(lengths**2) / labels.size, float(np.mean(labels**2)))
    shape = len(rows), 1 + labels.size
    field = Field(moments, 1, open=np.reshape(open_, shape))
    drops = _together(field, np.reshape(rows, shape), schedule(field, np.reshape(rows, shape), by_gain, until))
    named = (
        replace(drop, unit=largest[drop.unit], rival=None if drop.rival is None else largest[drop.rival])
        for drop in drops
    )
    return Drops(named, drops.reason)


def _together(field: Field, rows: Units, drops: Drops[UnitDrop]) -> Drops[UnitDrop]:
    """The drops at the times at which the loss of all rays passes them: those that share a point slow each other."""
    now, made = 0.0, []
    try:
        for drop in drops:
            middle = (drop.level_before + drop.level_after) / 2
            wait = 2 * drop.time - now
            path = field.course(rows, len(rows), wait, lambda rows, middle=middle: middle - field.residual(rows)[0])
            if not path.crossed:
                return Drops(made, f"the time of drop {len(made) + 1} is not known: {TOO_LARGE}")
            now, rows = now + path.time, path.state.reshape(rows.shape)
            made.append(replace(drop, time=now))
    except IntegrationFailed as error:
        return Drops(made, f"after {len(made)} drops: {error}")
    return Drops(made, drops.reason)


def _ray(
    v: float, p: Float[np.ndarray, " point"], drive: Float[np.ndarray, " point"]
) -> tuple[Bool[np.ndarray, " point"], float]:
    """The points that a small unit is active on in the end, and a: its size on their ray, continued to time 0."""
    p, time, active = p.copy(), 0.0, (p > 0) & (drive != 0)
    while active.any():
        rate = float(np.linalg.norm(drive[active]))
        along = np.where(active, drive, 0.0) / rate
        grows, shrinks = (v + along @ p) / 2, (v - along @ p) / 2
        rest = p - along * (along @ p)
        # Where p_m = 0, E = e^(rate t) solves aE² + (rest/along)E - b = 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            half = -rest[active] / along[active] / 2
            root = np.sqrt(half**2 + grows * shrinks)
            growth = np.array([(half + root) / grows, (half - root) / grows])
        growth[~(growth > 1)] = np.inf
        first = float(growth.min())
        if first == np.inf:
            return active, float(grows * np.exp(-rate * time))
        v, p = float(grows * first + shrinks / first), rest + along * (grows * first - shrinks / first)
        time += np.log(first) / rate
        stopped = np.flatnonzero(active)[np.argmin(growth.min(axis=0))]
        p[stopped], active[stopped] = 0.0, False
    return active, 0.0
