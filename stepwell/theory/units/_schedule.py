"""When a network of units learns, drop by drop: recruited units make a narrow network, the others are particles."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory

from .._integrate import IntegrationFailed
from ..linear import Drops
from ._narrow import Field, SupervisedTask, Units, split_weights

GROWN = 0.1
"""Particles are recruited when the loss that they would take away is this part of what is left."""
TIE = 0.05
"""Particles are rivals that are at this part of the largest then."""
MOST_RIVALS = 3
LEARNED = 1e-12
"""Of the first loss: drops below this part are lost in rounding."""
ERROR = {True: 0.5, False: 4.0}
"""Times what particles take from the loss, over its slope: the uncertainty of a time, by whether the degree is one."""
MOST_UNCERTAIN = 0.5
"""Times that are uncertain by a larger part of themselves are not given."""
TOO_LARGE = "the initial weights are not small, or units are nearly equal; try a smaller scale"
_PATIENCE = 100.0
_RESOLUTION = 2e-6
"""Of a time that is integrated through a long wait."""


@dataclass(frozen=True)
class UnitDrop:
    """The loss is midway from `level_before` to `level_after` at `time`, in units of τ, as `unit` (from 0) grows.

    Of a linear network `unit` counts collective directions, in their order; of rays it is the largest unit on the ray.
    The time is uncertain by `uncertainty`, in the same units. `rival` is another unit that grows at nearly the same
    time, so that either may be the first; None if there is none.
    """

    time: float
    unit: int
    level_before: float
    level_after: float
    uncertainty: float
    rival: int | None = None


Arrange = Callable[[Units, Float[np.ndarray, " unit"]], list[Float[np.ndarray, "unit unit"]]]
"""From particles and their gains, arrangements of them that have the one to be recruited first, the likeliest first."""


@checked
def direction_schedule(
    task: SupervisedTask,
    outer: Float[np.ndarray, "unit output patch"],
    inner: Float[np.ndarray, "unit kernel"],
    *,
    until: float = np.inf,
) -> Drops[UnitDrop]:
    r"""Return the drops of a network that is linear in its inner weights, from small initial weights.

    Units are rows of one matrix, and any rotation of these rows is the same network: as many rows as its rank are left.
    The network of the rows recruited so far is integrated. Rows at right angles to it feel its residual,
    $\tau\dot v = Ru$, $\tau\dot u = R^\top v$, and add to the map at second order only. When they have grown, their
    largest singular vector is the next row. What others take from the loss then corrects the time at first order. It is
    exact as initial weights become small.

    **Arguments:**

    - `task`: inputs with labels, such as a `tasks.GaussianTeacher`, with any covariance of the inputs.
    - `outer`, `inner`: initial weights, of shape (unit, output, patch) and (unit, dim / patch), as those of
      `models.PolynomialUnits`.
    - `until`: the time of the last drop that is asked for, in units of τ.

    **Returns:** the `UnitDrop`s in order of time; their `reason` says why there are no more, and is empty if all is
    learned.

    **Example:**

    >>> task = sw.tasks.GaussianTeacher([1.0, 0.5], [1.0, 1.5], separate=True)
    >>> rng = np.random.default_rng(0)
    >>> initial = 1e-4 * rng.normal(size=(10, 2, 1)), 1e-4 * rng.normal(size=(10, 2))
    >>> drops = sw.theory.units.direction_schedule(task, *initial)
    >>> [round(drop.time, 2) for drop in drops], [round(drop.level_after, 3) for drop in drops]
    ([8.11, 10.74], [0.375, 0.0])
    """
    units = split_weights(task, outer, inner)
    moments = task.moments(1, outer.shape[2])
    # A row that is rounding would grow like any other; of zero weights one row is left.
    _, sizes, rows = np.linalg.svd(units, full_matrices=False)
    most = np.count_nonzero(sizes > 10 * np.finfo(float).eps * max(units.shape) * sizes.max(initial=0.0))
    units = (sizes[:, None] * rows)[: max(most, 1)]

    def arrange(particles: Units, gains: np.ndarray) -> list[np.ndarray]:
        return [np.linalg.svd(particles)[0].T]

    return schedule(Field(moments, units.shape[1] - inner.shape[1]), units, arrange, until, collective=True)


@checked
def unit_schedule(
    task: SupervisedTask,
    outer: Float[np.ndarray, "unit output patch"],
    inner: Float[np.ndarray, "unit kernel"],
    degree: int = 2,
    *,
    until: float = np.inf,
) -> Drops[UnitDrop]:
    r"""Return the drops of a network of units of degree two or more in their inner weights: which unit, and when.

    A unit whose weights are zero leaves the others as they are. So each unit that has not grown is a particle: it feels
    the residual of those that have, and adds nothing. The first to bring the loss of the network of it and those
    midway to where that network comes to rest makes the drop, and belongs to the network from then on. It is exact as
    initial weights become small.

    **Arguments:**

    - `task`: inputs with labels, such as a `tasks.GaussianTeacher`.
    - `outer`, `inner`: initial weights, of shape (unit, output, patch) and (unit, dim / patch), as those of
      `models.PolynomialUnits`.
    - `degree`: the power of the units, 2 for quadratic ones.
    - `until`: the time of the last drop that is asked for, in units of τ.

    **Returns:** the `UnitDrop`s in order of time; their `reason` says why there are no more, and is empty if all is
    learned.

    **Example:** phase retrieval.

    >>> task = sw.tasks.GaussianTeacher([0.5, 0.3], [1.0, 1.0], degree=2)
    >>> rng = np.random.default_rng(0)
    >>> initial = 1e-3 * rng.normal(size=(6, 1, 1)), 1e-3 * rng.normal(size=(6, 2))
    >>> drops = sw.theory.units.unit_schedule(task, *initial)
    >>> [drop.unit for drop in drops], [round(drop.level_after, 3) for drop in drops]
    ([3, 0], [0.24, 0.0])
    """
    if checks.whole("degree", degree, most=8) == 1:
        raise InvalidInput("degree is 1; units that are linear grow together, and direction_schedule has their drops")
    units = split_weights(task, outer, inner)
    moments = task.moments(degree, outer.shape[2])
    return schedule(Field(moments, units.shape[1] - inner.shape[1], degree), units, by_gain, until)


def by_gain(particles: Units, gains: Float[np.ndarray, " unit"]) -> list[Float[np.ndarray, "unit unit"]]:
    """The particles, each of the largest first."""
    order = np.argsort(-gains, kind="stable")
    near = order[gains[order] >= TIE * gains.max()][:MOST_RIVALS]
    return [np.eye(gains.size)[np.append(first, np.delete(np.arange(gains.size), first))] for first in near]


def schedule(
    field: Field, units: Units, arrange: Arrange, until: float, *, collective: bool = False
) -> Drops[UnitDrop]:
    """The drops of a field from initial weights; `collective` if all particles together make the drop."""
    if np.isnan(until):
        raise InvalidInput("until is nan; it must be a time, or infinite for all drops")
    require_memory(
        8 * len(units) * (3 * units.size + 3 * len(units)),  # arrangements, and SciPy's banded Jacobian
        what=f"a prediction for {len(units)} units",
        instead="take fewer units",
    )
    names, level, floor = np.arange(len(units)), float(field.moments.label_power), field.floor
    if not level - floor > LEARNED * level:
        return Drops(reason="no network of this degree is better than zero weights; there is nothing to learn")
    drops: list[UnitDrop] = []
    strength = float(np.linalg.norm(field.residual(units[:0])[1], 2))
    span, now, state, off, crowd = 0.0, 0.0, units, 0.0, _RESOLUTION + 2 * field.degree * field.crowding(units)

    def gain(rows: Units) -> float:
        gains = field.gains(rows[known:], field.residual(rows[:known])[1])
        return float((gains.sum() if collective else gains.max(initial=-np.inf)) - GROWN * wanted)

    try:
        while (left := level - floor) > LEARNED * field.moments.label_power:
            known, wanted = len(drops), left
            if known == len(units):
                return Drops(drops, "no unit is left")
            if not drops and gain(state) >= 0:
                return Drops(drops, TOO_LARGE)
            wait = _patience(field.degree, strength, float(np.abs(state[known:]).max()))
            path = field.course(state, known, wait, gain)
            if not path.crossed:
                return Drops(drops, "none of the units that are left grows")
            now, state = now + path.time, path.state.reshape(units.shape)
            found = []
            for each in arrange(state[known:], field.gains(state[known:], field.residual(state[:known])[1])):
                turn = np.eye(len(units))
                turn[known:, known:] = each
                rows = (turn @ units)[: known + 1]
                found.append((*field.turned(turn).drop(rows, level, now, 2 * now + wait), turn))
            time, end, strength, turn = min(found, key=lambda one: one[0])
            if time > until:
                return Drops(drops, f"the next drop is later than until = {until:g}")
            if not np.isfinite(time) or end >= level:
                return Drops(drops, TOO_LARGE)
            units, field, names = turn @ units, field.turned(turn), names if collective else (turn @ names).astype(int)
            before, level, known, wanted = level, end, known + 1, level - end
            path = field.course(units, known, time, gain)
            now, state = path.time, path.state.reshape(units.shape)
            residual = field.residual(state[:known])[1]
            taken = field.gains(state[known:], residual)
            slope = 2 * np.sum(field.velocity(state[:known], known) ** 2)
            # Where growth is exponential, what particles take from the loss is what the time lacks at first order.
            # Elsewhere a particle that has grown before the drop may have made it.
            off += ERROR[field.degree == 1] * float(np.abs(taken).sum() / slope)
            off += 0.0 if field.degree == 1 else time - now
            time -= float(taken.sum() / slope) if field.degree == 1 else 0.0
            rival = int(names[known + np.argmax(taken)]) if taken.max(initial=0.0) > TIE * wanted else None
            if not off + crowd * time <= MOST_UNCERTAIN * time:
                return Drops(drops, f"the time of drop {known} is not known: {TOO_LARGE}, or another seed")
            if drops and time - drops[-1].time < span:  # drops that come together: as uncertain as one is long
                drops[-1] = replace(drops[-1], uncertainty=drops[-1].uncertainty + span)
            span = wanted / slope
            drops.append(UnitDrop(time, int(names[known - 1]), before, level, off + crowd * time, rival))
    except IntegrationFailed as error:
        return Drops(drops, f"after {len(drops)} drops: {error}")
    return Drops(drops)


def _patience(degree: int, strength: float, size: float) -> float:
    """How long particles of a size are given in a residual: many times what the slowest take."""
    if strength == 0 or size == 0:
        return 0.0
    if degree == 1:
        return _PATIENCE * (10 - min(np.log(size), 0.0)) / strength
    return _PATIENCE**2 / (strength * size ** (degree - 1))
