"""One door to SciPy's stiff solver, with tolerances tied to the scale of the initial weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._errors import InvalidInput

RELATIVE_TOLERANCE = 1e-10
ABSOLUTE_TOLERANCE = 1e-8
"""Per unit of initial weight: what is below the start by eight digits does not decide when a plateau is left."""


class IntegrationFailed(RuntimeError):
    """The solver stopped before the end."""


def integrate(
    field: Callable[[float, np.ndarray], np.ndarray],
    start: Float[np.ndarray, " state"],
    until: float,
    *,
    times: Float[np.ndarray, " time"] | None = None,
    event: Callable[[float, np.ndarray], float] | None = None,
    band: int | None = None,
    scale: float | None = None,
) -> Any:
    """Solve y' = field(t, y) from `start` at time 0, to `until` or the first upward zero of `event`.

    `band`: half-width of the Jacobian, if it is banded. `scale`: size of the weights that must be followed, if some of
    the start is larger. Returns SciPy's result, whose `status` is 1 if the event came.
    """
    scale = float(np.abs(start).max()) if scale is None else scale
    options: dict[str, Any] = {"rtol": RELATIVE_TOLERANCE, "atol": ABSOLUTE_TOLERANCE * scale}
    if band is not None:
        options |= {"lband": band, "uband": band}
    if event is not None:
        watch = event

        def crossing(t: float, y: np.ndarray) -> float:
            return watch(t, y)

        crossing.terminal = True
        crossing.direction = 1.0
        options["events"] = crossing
    try:
        solution = scipy.integrate.solve_ivp(field, (0.0, until), start, method="LSODA", t_eval=times, **options)
    except ValueError as error:
        # What SciPy raises when it searches for the zero of the event in a step shorter than the rounding of t.
        raise IntegrationFailed(
            f"the drop is too short for its time in float64; the initial weights are of size {scale:.2g}: "
            "try a larger start"
        ) from error
    if solution.status < 0:
        raise IntegrationFailed(
            f"the solver stopped at t/tau = {max(solution.t, default=0.0):.3g} of {until:.3g} ({solution.message}); "
            f"the initial weights are of size {scale:.2g}: try a larger start"
        )
    return solution


def require_times(times: Float[np.ndarray, " time"]) -> None:
    """Raise `InvalidInput` unless the times at which a course is asked for are non-negative and increasing."""
    if times.size == 0 or times[0] < 0 or np.any(np.diff(times) <= 0):
        raise InvalidInput("times must be non-negative and increasing; give for instance numpy.linspace(0, 100, 500)")


def require_positive(name: str, value: float) -> None:
    """Raise `InvalidInput` unless the value is above zero: a start of zero never leaves its plateau."""
    if not value > 0:
        raise InvalidInput(f"{name} is {value}; it must be above 0, since the flow never leaves zero")
