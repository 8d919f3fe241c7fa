"""Drops of a loss curve between levels that are known."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from ._staircase import EDGE, NOISE_IN_A_FALL, curve, noise_of, passage

Status = Literal["measured", "below resolution", "not reached"]

_RESOLVED = 0.1
"""Points on either side of a drop may be apart by this part of its time."""


@dataclass(frozen=True)
class LevelDrop:
    """The loss falls from the level `before` to `after`: 10 % at `start`, half at `time`, 90 % at `end`.

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


@checked
def level_drops(
    time: Float[np.ndarray, " point"], loss: Float[np.ndarray, " point"], levels: Float[np.ndarray, " level"]
) -> tuple[LevelDrop, ...]:
    """The drops of a loss curve from each of several known levels to the next, as the theory gives them.

    `staircase` detects plateaus without knowing where they are, and misses drops that are far smaller than the whole
    fall. Where levels are known, each drop is the passage of the level halfway between two of them.

    **Arguments:**

    - `time`: the times (or steps) of the recorded points, increasing; at least two.
    - `loss`: the losses there, finite.
    - `levels`: the levels of the plateaus, falling; at least two.

    **Returns:** a `LevelDrop` for each two neighboring levels, in their order, whether it was reached or not.

    **Example:**

    The second drop is a thousandth of the first.

    >>> import numpy as np
    >>> import stepwell as sw
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
    drops = []
    for before, after in zip(levels[:-1].tolist(), levels[1:].tolist(), strict=True):
        start, half, end = (passage(time, lowest, before - part * (before - after)) for part in (EDGE, 0.5, 1 - EDGE))
        place = int(np.argmax(lowest <= (before + after) / 2))
        spacing = float(time[place] - time[max(place - 1, 0)]) if np.isfinite(half) else float("nan")
        hidden = before - after <= NOISE_IN_A_FALL * noise
        inside = (not np.isfinite(end) or end <= time[place]) and start >= time[max(place - 1, 0)]
        coarse = inside and spacing > _RESOLVED * half
        status: Status = "not reached" if np.isnan(half) else "below resolution" if hidden or coarse else "measured"
        drops.append(LevelDrop(half, start, end, before, after, spacing, status))
    return tuple(drops)
