"""Plateaus and drops of a loss curve: detected without knowing where they are, or between levels that are known."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

Status = Literal["measured", "below resolution", "not reached"]

_EDGE = 0.1
"""A drop lasts from 10 % to 90 % of its fall, as rise times are defined."""
_NOISE_IN_A_BAND = 4.0
"""A band of levels is at least so many standard deviations of the curve's noise wide."""
_NOISE_IN_A_FALL = 8.0
"""A curve has not fallen unless by more than so many: the least of 10^6 Gaussians lies 5 below their mean."""
_MOST_BANDS = 10**6
_RESOLVED = 0.1
"""Points on either side of a drop may be apart by this part of its time."""


@dataclass(frozen=True)
class Plateau:
    """The loss stays near `level` from `start` to `end`."""

    level: float
    start: float
    end: float


@dataclass(frozen=True)
class Drop:
    """The loss falls from the level `before` to the level `after`: 10 % at `start`, half at `time`, 90 % at `end`.

    Times are nan where the curve does not come down so far. `spacing` is the distance of the two recorded points
    between which the curve passes half: `time` is interpolated between them. `status` is "not reached", or "below
    resolution" where the whole fall lies between two recorded points that are apart by more than a tenth of its time,
    or where noise could hide it; else "measured".
    """

    time: float
    start: float
    end: float
    before: float
    after: float
    spacing: float
    status: Status


@dataclass(frozen=True)
class Staircase:
    """Plateaus and drops in the order of time."""

    plateaus: tuple[Plateau, ...]
    drops: tuple[Drop, ...]


@checked
def staircase(
    time: Float[np.ndarray, " point"], loss: Float[np.ndarray, " point"], *, contrast: float = 4.0, bands: int = 200
) -> Staircase:
    """Return the plateaus and drops of a loss curve, without knowing its levels.

    The fall from the first loss to the last is cut into `bands` of equal height, and the time that the running minimum
    of the loss spends in each is its dwell. Dwell is slowness as a function of the *level*, so the spacing of the
    recorded points, logarithmic or linear, does not matter. A plateau is a level where the curve is slower, by the
    factor `contrast`, than at the fastest level on either side, between it and the next plateau; a drop is that
    fastest level. A curve that begins or ends in a fall begins or ends with a drop.

    Bands are widened where the curve is noisy, by the median size of its second differences. A curve that does not fall
    by more than its noise is one plateau. A drop smaller than a band is not detected.

    **Arguments:**

    - `time`: the times (or steps) of the recorded points, increasing; at least two.
    - `loss`: the losses there, finite.
    - `contrast`: how much slower than the drops beside it a plateau must be; above 1.
    - `bands`: into how many bands the fall is cut, at the most.

    **Returns:** a `Staircase` with all plateaus and drops in the order of time, with times in the unit of `time`.

    **Example:**

    >>> time = np.linspace(0.0, 100.0, 1001)
    >>> found = sw.analysis.staircase(time, 1 / (1 + np.exp(time - 20)) + 1 / (1 + np.exp(time - 60)))
    >>> [round(plateau.level, 1) for plateau in found.plateaus], [round(drop.time, 1) for drop in found.drops]
    ([2.0, 1.0, 0.0], [20.0, 60.0])
    """
    time, loss = curve(time, loss)
    contrast = checks.number("contrast", contrast, least=1.0, above=True)
    bands = min(checks.whole("bands", bands, least=2), _MOST_BANDS)
    lowest = np.minimum.accumulate(loss)
    fall = float(lowest[0] - lowest[-1])
    noise = noise_of(loss)
    if fall <= max(_NOISE_IN_A_FALL * noise, 1e-12 * abs(float(loss[0]))):
        return Staircase((Plateau(float(np.median(loss)), float(time[0]), float(time[-1])),), ())
    if noise > 0:
        bands = int(np.clip(fall / (_NOISE_IN_A_BAND * noise), 2, bands))

    edges = np.linspace(lowest[0], lowest[-1], bands + 1)
    reached = np.array([time[0], *(passage(time, lowest, edge) for edge in edges[1:-1]), time[-1]])
    slow, fast = _turns(np.log(np.diff(reached)), float(np.log(contrast)))
    levels = {band: _level_in(time, loss, reached, band) for band in slow}
    # A first point that is high by chance, or a last one that is low, is no fall.
    least = _NOISE_IN_A_FALL * noise
    if fast and fast[0] < slow[0] and lowest[0] - levels[slow[0]] <= least:
        fast = fast[1:]
    if fast and fast[-1] > slow[-1] and levels[slow[-1]] - lowest[-1] <= least:
        fast = fast[:-1]

    drops = []
    for band in fast:
        before = max((k for k in slow if k < band), default=None)
        after = min((k for k in slow if k > band), default=None)
        high = float(lowest[0]) if before is None else levels[before]
        low = float(lowest[-1]) if after is None else levels[after]
        drops.append(_drop(time, lowest, noise, high, low))
    plateaus = []
    for band in slow:
        earlier = [drop.end for drop, k in zip(drops, fast, strict=True) if k < band]
        later = [drop.start for drop, k in zip(drops, fast, strict=True) if k > band]
        plateaus.append(
            Plateau(levels[band], max(earlier, default=float(time[0])), min(later, default=float(time[-1])))
        )
    return Staircase(tuple(plateaus), tuple(drops))


@checked
def level_drops(
    time: Float[np.ndarray, " point"], loss: Float[np.ndarray, " point"], levels: Float[np.ndarray, " level"]
) -> tuple[Drop, ...]:
    """Return the drops of a loss curve from each of several known levels to the next, as the theory gives them.

    `staircase` detects plateaus without knowing where they are, and misses drops that are far smaller than the whole
    fall. Where levels are known, each drop is the passage of the level halfway between two of them.

    **Arguments:**

    - `time`: the times (or steps) of the recorded points, increasing; at least two.
    - `loss`: the losses there, finite.
    - `levels`: the levels of the plateaus, falling; at least two.

    **Returns:** a `Drop` for each two neighboring levels, in their order, whether it was reached or not.

    **Example:** the second drop is a thousandth of the first.

    >>> time = np.linspace(0.0, 100.0, 1001)
    >>> loss = 1 / (1 + np.exp(time - 20)) + 0.001 / (1 + np.exp(time - 60))
    >>> for drop in sw.analysis.level_drops(time, loss, np.array([1.001, 0.001, 0.0])):
    ...     print(f"{drop.time:.1f} {drop.status}")
    20.0 measured
    60.0 measured
    >>> len(sw.analysis.staircase(time, loss).drops)
    1
    """
    time, loss = curve(time, loss)
    if levels.size < 2 or not np.all(np.isfinite(levels)) or np.any(np.diff(levels) >= 0):
        raise InvalidInput(f"levels are {levels.tolist()}; give at least two finite numbers, each below the one before")
    lowest, noise = np.minimum.accumulate(loss), noise_of(loss)
    steps = zip(levels[:-1].tolist(), levels[1:].tolist(), strict=True)
    return tuple(_drop(time, lowest, noise, before, after) for before, after in steps)


@checked
def passage_time(time: Float[np.ndarray, " point"], loss: Float[np.ndarray, " point"], level: float) -> float:
    """Return when a curve first comes down to a level, interpolated between recorded points.

    **Arguments:**

    - `time`: the times (or steps) of the recorded points, increasing; at least two.
    - `loss`: the curve there, finite.
    - `level`: the value to come down to.

    **Returns:** the time, in the unit of `time`; nan if the curve never comes down so far.

    **Example:**

    >>> sw.analysis.passage_time(np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.5, 0.0]), level=0.25)
    1.5
    """
    time, loss = curve(time, loss)
    return passage(time, np.minimum.accumulate(loss), level)


def curve(time: np.ndarray, loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if time.shape != loss.shape or time.size < 2:
        raise InvalidInput(f"there are {time.size} times and {loss.size} losses; give as many of each, at least two")
    if np.any(np.diff(time) <= 0) or not np.all(np.isfinite(loss)):
        raise InvalidInput(
            "times must increase and losses must be finite; end the curve before the first point that breaks this"
        )
    return np.asarray(time, dtype=float), np.asarray(loss, dtype=float)


def passage(time: np.ndarray, lowest: np.ndarray, level: float) -> float:
    place = int(np.argmax(lowest <= level))
    if lowest[place] > level:
        return float("nan")
    if place == 0:
        return float(time[0])
    part = (lowest[place - 1] - level) / (lowest[place - 1] - lowest[place])
    return float(time[place - 1] + part * (time[place] - time[place - 1]))


def _drop(time: np.ndarray, lowest: np.ndarray, noise: float, before: float, after: float) -> Drop:
    """The passage of a curve, which falls to `lowest`, from one level to the next."""
    start, half, end = (passage(time, lowest, before - part * (before - after)) for part in (_EDGE, 0.5, 1 - _EDGE))
    place = int(np.argmax(lowest <= (before + after) / 2))
    spacing = float(time[place] - time[max(place - 1, 0)]) if np.isfinite(half) else float("nan")
    hidden = is_hidden(before, after, noise)
    inside = (not np.isfinite(end) or end <= time[place]) and start >= time[max(place - 1, 0)]
    coarse = inside and spacing > _RESOLVED * half
    status: Status = "not reached" if np.isnan(half) else "below resolution" if hidden or coarse else "measured"
    return Drop(half, start, end, before, after, spacing, status)


def is_hidden(before: float, after: float, noise: float) -> bool:
    """Whether noise could hide the fall from one level to the next."""
    return before - after <= _NOISE_IN_A_FALL * noise


def noise_of(loss: np.ndarray) -> float:
    """Standard deviation of white noise on a smooth curve: second differences have six times its variance."""
    if loss.size < 5:
        return 0.0
    return float(np.median(np.abs(np.diff(loss, n=2)))) * 1.4826 / 6**0.5


def _level_in(time: np.ndarray, loss: np.ndarray, reached: np.ndarray, band: int) -> float:
    """The time-weighted median of the loss while the curve is in a band."""
    points = np.linspace(reached[band], reached[band + 1], 201)
    return float(np.median(np.interp(points, time, loss)))


def _turns(height: np.ndarray, step: float) -> tuple[list[int], list[int]]:
    """(peaks, valleys) of a sequence that differ from their neighbors of the other kind by at least `step`.

    A peak counts once the sequence has fallen by `step` from it, a valley once it has risen by that.
    """
    peaks: list[int] = []
    valleys: list[int] = []
    high = low = 0
    climbing = True
    for k in range(height.size):
        if height[k] > height[high]:
            high = k
        if height[k] < height[low]:
            low = k
        if climbing and height[high] - height[k] >= step:
            if not peaks and height[high] - height[low_before := int(np.argmin(height[: high + 1]))] >= step:
                valleys.append(low_before)
            peaks.append(high)
            low, climbing = k, False
        elif not climbing and height[k] - height[low] >= step:
            valleys.append(low)
            high, climbing = k, True
    if climbing:
        if not peaks and height[high] - height[first := int(np.argmin(height[: high + 1]))] >= step:
            valleys.append(first)
        peaks.append(high)
    else:
        valleys.append(low)
    return peaks, valleys
