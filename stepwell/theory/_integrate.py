"""One door to SciPy's stiff solver, with tolerances tied to the scale of the initial weights."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util.errors import InvalidInput
from stepwell._util.progress import Meter

RELATIVE_TOLERANCE = 1e-10
ABSOLUTE_TOLERANCE = 1e-8
"""Per unit of initial weight: what is eight digits below them does not decide when a plateau is left."""
MOST_STEPS = 20_000
"""Steps that a prediction may take: some seconds of work for a few heads. Some hundreds are the rule."""
_SHORT = 1e-4
"""A step shorter than this part of the time so far is too short for its digits: time is counted anew."""
_FIRST = 0.1
"""The first step, in units of the fastest time."""

Vector = Float[np.ndarray, " state"]


class IntegrationFailed(RuntimeError):
    """The solver stopped before the end."""


class Path(NamedTuple):
    """A solution, at the times asked for and where it ended."""

    states: Float[np.ndarray, "time state"]
    time: float
    state: Vector
    crossed: bool
    """Whether it ended at the event."""
    steps: int
    """How many it took."""


def integrate(
    field: Callable[[Vector], Vector],
    start: Vector,
    until: float,
    *,
    jacobian: Callable[[Vector], np.ndarray] | None = None,
    times: Float[np.ndarray, " time"] | None = None,
    event: Callable[[Vector], float] | None = None,
    band: int | None = None,
    scale: float | None = None,
    most: int = MOST_STEPS,
    shown: bool = True,
) -> Path:
    """Solve y' = field(y) from `start` at time 0, to `until` or the first upward zero of `event`.

    `jacobian` is that of the field, in the packed form of SciPy if `band`, its half-width, is given. Without it, it is
    made of differences, whose errors keep steps short where something fast has come to rest. `scale`: size of the
    weights that must be followed, if some of the initial ones are larger. After `most` steps it is given up.
    """
    if not np.all(np.isfinite(start)):
        raise InvalidInput("some of the initial weights are not finite; they must be finite numbers")
    scale = (float(np.abs(start).max()) if scale is None else scale) or 1.0
    options: dict[str, Any] = {"rtol": RELATIVE_TOLERANCE, "atol": ABSOLUTE_TOLERANCE * scale}
    if band is not None:
        options |= {"lband": band, "uband": band}
    if jacobian is not None:
        options["jac"] = lambda _, y: jacobian(y)
    wanted = np.zeros(0) if times is None else times
    states = np.zeros((wanted.size, start.size))
    states[wanted == 0.0] = start
    if event is not None and event(start) >= 0:
        return Path(states, 0.0, start, crossed=True, steps=0)
    # Time counts from `begun`: near the end of a long plateau steps are far shorter than the rounding of all time.
    begun, state, steps, stepper = 0.0, start, 0, None
    quiet = np.errstate(over="ignore", invalid="ignore")
    with Meter("integrating", 1.0, shown=shown) as meter, warnings.catch_warnings(), quiet:
        # A trial step may leave the numbers, and is then rejected; LSODA's words about a failure are not its reason.
        warnings.simplefilter("ignore", UserWarning)
        while begun < until:
            if stepper is None:
                if jacobian is not None:
                    # LSODA begins with a method for what is not stiff, and gives up if its own guess is far too long.
                    fastest = float(np.abs(jacobian(state)).max())
                    options["first_step"] = min(_FIRST / fastest if fastest > 0 else np.inf, until - begun)
                stepper = scipy.integrate.LSODA(lambda _, y: field(y), 0.0, state, until - begun, **options)
            stepper.step()
            steps += 1
            now = until if stepper.status == "finished" else begun + stepper.t
            if stepper.status == "failed" and stepper.t > 0:  # begun anew from here it may do
                begun, stepper = now, None
                continue
            if stepper.status == "failed" or not np.all(np.isfinite(stepper.y)):
                raise IntegrationFailed(_not_followed(now, until, "no step is short enough", scale))
            inside = (wanted > begun + stepper.t_old) & (wanted <= now)
            crossed = event is not None and event(stepper.y) >= 0
            path = stepper.dense_output() if crossed or inside.any() else None
            if path is not None and inside.any():
                states[inside] = path(np.minimum(wanted[inside] - begun, stepper.t)).T
            if event is not None and crossed and path is not None:
                crossing = _crossing(lambda t, path=path: event(path(t)), stepper.t_old, stepper.t)
                return Path(states, begun + crossing, path(crossing), crossed=True, steps=steps)
            state = stepper.y
            if stepper.status == "finished":
                break
            if steps >= most:
                raise IntegrationFailed(_not_followed(now, until, f"{steps} steps did not lead further", scale))
            if stepper.step_size < _SHORT * stepper.t:
                begun, stepper = now, None
            meter.update(steps / most, f"t/tau {now:.3g}")
    return Path(states, until, state, crossed=False, steps=steps)


def _crossing(height: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a function that is negative at `low` and not at `high`, to the last digit."""
    if height(low) >= 0:
        return low
    if height(high) < 0:  # the interpolant, not the solution
        return high
    return float(scipy.optimize.brentq(height, low, high, xtol=4 * np.finfo(float).tiny, rtol=8.9e-16))


def _not_followed(time: float, until: float, why: str, scale: float) -> str:
    """The message of `IntegrationFailed`."""
    return (
        f"not followed beyond t/tau = {time:.4g} (of {until:.3g}), since {why}; the initial weights are of size "
        f"{scale:.2g}: try larger ones, or eigenvalues that are less far apart"
    )


def require_times(times: Float[np.ndarray, " time"]) -> None:
    """Raise `InvalidInput` unless the times at which a course is asked for are non-negative and increasing."""
    if times.size == 0 or times[0] < 0 or np.any(np.diff(times) <= 0):
        raise InvalidInput("times must be non-negative and increasing; give for instance numpy.linspace(0, 100, 500)")


def require_positive(name: str, value: float) -> None:
    """Raise `InvalidInput` unless the value is above zero: weights of zero never leave their plateau."""
    if not value > 0:
        raise InvalidInput(f"{name} is {value}; it must be above 0, since the flow never leaves zero")
