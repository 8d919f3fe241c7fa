"""Warm-up, emergence and convergence of a loss curve, detected without knowing where they are."""

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked

from ._staircase import curve, noise_of, passage_time

_PARTS = 10
"""The fall is cut into so many equal parts: the first is the warm-up's, the last the convergence's."""
_ERROR = 0.02
"""Standard error of the two levels, as part of the fall."""


@dataclass(frozen=True)
class Phase:
    """From `start` to `end`, during which the loss goes from `before` to `after`."""

    start: float
    end: float
    before: float
    after: float


@dataclass(frozen=True)
class Phases:
    """The three phases, each beginning where the one before ends, and `half`, when half of the fall is done."""

    warm_up: Phase
    emergence: Phase
    convergence: Phase
    half: float


@checked
def phases(
    time: Float[np.ndarray, " point"], loss: Float[np.ndarray, " point"], *, contrast: float = 4.0
) -> Phases | None:
    """Return the three phases of a loss curve: it waits, falls, and settles.

    Emergence is from 10 % to 90 % of the fall, as rise times are defined. There are three phases if the first and the
    last tenth of the fall each take longer, by the factor `contrast`, than a tenth does in any fifth between: a plateau
    on the way makes a staircase, not one emergence. How long a curve settles depends on how long it is recorded; one
    that is cut off too early has no convergence yet.

    Noise is removed by the falling curve nearest to the losses (isotonic regression). The levels at both ends are means
    over as many points as make their standard error a fiftieth of the fall; in a curve with too few for that phases
    cannot be distinguished from noise.

    **Arguments:**

    - `time`: the times (or steps) of the recorded points, increasing; at least two.
    - `loss`: the losses there, finite.
    - `contrast`: how much slower than the fall the ends must be; above 1.

    **Returns:** the `Phases`, with times in the unit of `time`; None if the curve has no three phases.

    **Example:**

    >>> time = np.linspace(0.0, 40.0, 401)
    >>> three = sw.analysis.phases(time, 1 / (1 + np.exp(time - 20)))
    >>> [round(t, 1) for t in (three.emergence.start, three.half, three.emergence.end)]
    [17.8, 20.0, 22.2]
    """
    time, loss = curve(time, loss)
    contrast = checks.number("contrast", contrast, least=1.0, above=True)
    fitted = np.asarray(scipy.optimize.isotonic_regression(loss, increasing=False).x)
    ends = _levels(loss, noise_of(loss))
    if ends is None:
        return None
    high, low = ends
    reached = [passage_time(time, fitted, high - part * (high - low)) for part in np.arange(1, _PARTS) / _PARTS]
    edges = np.array([time[0], *reached, time[-1]])
    tenths = np.diff(edges)
    between = (tenths[1:-2] + tenths[2:-1]) / 2
    if not min(tenths[0], tenths[-1]) >= contrast * between.max():
        return None
    start, half, end = (float(edges[place]) for place in (1, _PARTS // 2, -2))
    tenth = (high - low) / 10
    return Phases(
        Phase(float(time[0]), start, high, high - tenth),
        Phase(start, end, high - tenth, low + tenth),
        Phase(end, float(time[-1]), low + tenth, low),
        half,
    )


def _levels(loss: np.ndarray, noise: float) -> tuple[float, float] | None:
    """Levels at the start and at the end, over as few points as the noise allows; None if there are too few."""
    count = 1
    while 2 * count <= loss.size:
        high, low = float(loss[:count].mean()), float(loss[-count:].mean())
        if high - low > 1e-12 * abs(high) and noise <= _ERROR * (high - low) * count**0.5:
            return high, low
        count += 1
    return None
