"""Drops of a run of linear attention, predicted from its initial weights and measured: `probes.compare` for a page."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell.dynamics import weight_factor
from stepwell.models import class_of
from stepwell.probes import LevelDrop, level_drops
from stepwell.published.training import Setup
from stepwell.theory import IntegrationFailed, linear

_GROWN = (1 - 0.5**0.5) ** (1 / 3)
"""Of its end, the value of a head when the loss has fallen by half of its drop: 1 - (1 - x³)² is a half."""
_EARLY = 0.02
"""Of its end, the value from which on the scalar equation of a head is drawn: before, the head is still turning."""


class Theory(NamedTuple):
    """What the theory says of a run, in the times of the page; the weights are those of attention divided by N."""

    task: Any
    kind: str
    levels: Float[np.ndarray, " level"]
    """Of the plateaus that the model can visit."""
    learned: list[int]
    """Components that are learned on each."""
    drops: list[linear.PredictedDrop]
    reason: str
    """Why some drops are missing, or empty."""
    start: dict[str, np.ndarray]


def weight_scale(setup: Setup) -> float:
    """What a weight of the run is multiplied by to be one of attention divided by N."""
    model: Any = setup.model
    return weight_factor(setup.normalisation, "1/N", length=setup.flags.context, factors=model.factors)


def theory_weights(setup: Setup, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return class_of(setup.flags.kind).theory_weights(weights)


def levels_of(setup: Setup) -> tuple[list[int], Float[np.ndarray, " level"]]:
    """How many components are learned on each plateau that the model can visit, and its loss."""
    task: Any = setup.task
    flags = setup.flags
    losses = linear.levels(task)
    useful = int(np.sum(np.diff(losses) < 0))
    pairs = flags.head_num * flags.kind.pairs(flags.in_dim, flags.rank)
    learned = linear.PREDICTORS[str(flags.kind.theory)].plateaus(useful, pairs)
    return learned, losses[learned]


def predict(setup: Setup, until: float) -> Theory:
    """The drops that the theory predicts from the initial weights, up to a time."""
    kind = str(setup.flags.kind.theory)
    learned, levels = levels_of(setup)
    start = theory_weights(setup, {name: np.asarray(weight) for name, weight in setup.model.weights().items()})
    start = {name: weight_scale(setup) * value for name, value in start.items()}
    drops = linear.PREDICTORS[kind].drops(setup.task, start, until=until)  # pyright: ignore
    made, reason = list(drops)[: levels.size - 1], drops.reason
    if not reason and len(made) < levels.size - 1:
        reason = f"later drops are predicted after t/τ = {until:.4g}"
    return Theory(setup.task, kind, levels, learned, made, reason, start)


def theory_values(theory: Theory, time: Float[np.ndarray, " point"], end: Float[np.ndarray, " head"]) -> np.ndarray:
    """The value of each head by the scalar equations, (point, head); nan where they say nothing.

    `end` are the measured values in the end: of them the sign is taken, which the loss does not know.
    """
    made = np.full((time.size, end.size), np.nan)
    try:
        if theory.kind == "merged":
            v, u = linear.merged_start(theory.task, **theory.start)
            if v > 0:
                modes = linear.modes(theory.task)
                unit = modes.driving / np.linalg.norm(modes.driving)
                course = linear.merged_course(theory.task, time, v, u)
                along = np.einsum("hij,id,jd->hd", theory.start["key_queries"], modes.directions, modes.directions)
                share = (theory.start["values"] + along @ unit) / 2
                made[:] = course.value[:, None] * share / np.linalg.norm(share)
            return made
        _separate_values(theory, time, np.sign(end), made)
    except IntegrationFailed:
        pass
    return made


def _separate_values(theory: Theory, time: np.ndarray, signs: np.ndarray, made: np.ndarray) -> None:
    """Of the first component that each head learns, up to its second."""
    for place, drop in enumerate(theory.drops):
        if drop.head is None or drop.component is None:
            continue
        if any(other.head == drop.head for other in theory.drops[:place]):
            continue
        later = [other.time for other in theory.drops[place + 1 :] if other.head == drop.head]
        final = linear.aligned_end(theory.task, drop.component)
        if not final > 0:
            continue
        first = _EARLY * final
        half = float(linear.aligned_time(theory.task, drop.component, first, np.array([_GROWN * final]))[0])
        since = time - (drop.time - half)
        shown = (since >= 0) & (time < min(later, default=np.inf))
        values = linear.aligned_value(theory.task, drop.component, first, since[shown])
        made[shown, drop.head] = signs[drop.head] * values


COLUMNS = (
    "drop",
    "component",
    "measured component",
    "head",
    "measured head",
    "time",
    "measured time",
    "level",
    "measured level",
    "in order",
)


class Curve(NamedTuple):
    """A loss, and the times of the page at which it was recorded."""

    time: Float[np.ndarray, " record"]
    loss: Float[np.ndarray, " record"]


class Measured(NamedTuple):
    """The drops of a run, and a row of the table for each, and one for the end."""

    drops: tuple[LevelDrop, ...]
    rows: list[list[Any]]


def measure(
    theory: Theory, curve: Curve, points: Float[np.ndarray, " point"], maps: Float[np.ndarray, "point head dim dim"]
) -> Measured:
    """Drops of the loss between the theory's levels, beside the predicted ones.

    `maps` is what each head adds to the effective map at the times `points`, for attention divided by N. The loss may
    be recorded at more times.
    """
    if curve.time.size < 2 or theory.levels.size < 2 or np.any(np.diff(theory.levels) >= 0):
        return Measured((), [])
    drops = level_drops(curve.time, curve.loss, theory.levels)
    rows: list[list[Any]] = []
    for place, drop in enumerate(drops):
        predicted = theory.drops[place] if place < len(theory.drops) else None
        component, head, in_order = None, None, None
        if theory.kind == "separate" and drop.status != "not reached":
            component, head, in_order = _learned(theory, drop, place, maps, points)
        rows.append(
            [
                place + 1,
                None if predicted is None or predicted.component is None else predicted.component + 1,
                component,
                None if predicted is None or predicted.head is None else predicted.head + 1,
                head,
                None if predicted is None else predicted.time,
                _finite(drop.time),
                float(theory.levels[place + 1]),
                _plateau(curve, drops, place),
                in_order,
            ]
        )
    end: list[Any] = [None] * len(COLUMNS)
    end[0], end[-3], end[-2] = "end", float(theory.levels[-1]), float(curve.loss[-1])
    return Measured(drops, [*rows, end])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _plateau(curve: Curve, drops: tuple[LevelDrop, ...], place: int) -> float | None:
    """The loss halfway, by the logarithm of time, between the end of a drop and the start of the next."""
    begin, (time, loss) = drops[place].end, curve
    if not np.isfinite(begin):
        return None
    following = drops[place + 1].start if place + 1 < len(drops) else np.nan
    end = following if np.isfinite(following) else float(time[-1])
    middle = np.sqrt(max(begin, 1e-300) * max(end, begin, 1e-300))
    return float(np.interp(middle, time, loss)) if place + 1 < len(drops) else float(loss[-1])


def _learned(
    theory: Theory, drop: LevelDrop, expected: int, maps: np.ndarray, time: np.ndarray
) -> tuple[int, int, bool]:
    """Component and head that grew most during a drop, from 1, and whether that component was the expected one."""
    before = max(int(np.searchsorted(time, drop.start, side="right")) - 1, 0)
    end = drop.end if np.isfinite(drop.end) else time[-1]
    after = max(min(int(np.searchsorted(time, end)), len(time) - 1), before)
    gained = linear.shares(theory.task, maps[after].sum(axis=0))[1]
    gained = gained - linear.shares(theory.task, maps[before].sum(axis=0))[1]
    component = int(np.argmax(gained))
    head = int(np.argmax(np.linalg.norm(maps[after] - maps[before], axis=(1, 2))))
    gains = linear.component_gains(theory.task)
    same = bool(np.isclose(gains[component], gains[expected], rtol=1e-6, atol=0.0))
    return component + 1, head + 1, same
