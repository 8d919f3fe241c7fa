"""Separate key and query, rank one: the growth of one head aligned with one mode."""

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import require_positive
from .._task import RegressionTask
from ._modes import Modes, modes

_BISECTIONS = 100
"""Halvings of a bracket of log odds less than 2^11 wide: beyond the last bit of a float64."""


@checked
def aligned_end(task: RegressionTask, component: int) -> float:
    r"""Where a head with $k = q = v e_d$ comes to rest, $v_\infty = (m_d/c_d)^{1/3}$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.

    **Returns:** $v_\infty$, the value of the head and the length of its key and query in the end.

    **Example:** with few pairs in the context, the head stays smaller.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> for context in (10, 1000):
    ...     task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), context)
    ...     print(f"{sw.theory.linear.aligned_end(task, 0):.3f}")
    1.096
    1.185
    """
    return float(_modes_with(task, component).ends[component] ** (1 / 3))


@checked
def aligned_escape_time(task: RegressionTask, component: int, start: float) -> float:
    r"""When a head aligned with component d leaves a small start $v_0$: $t/\tau \approx 1/(\lambda_d m_d v_0)$.

    In the paper's case it is $1/(\lambda_d^2 v_0)$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.
    - `start`: $v_0$, above 0, of value, key and query alike.

    **Returns:** the time, in units of τ.

    **Example:** $1/(0.4^2 \cdot 0.01)$.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.aligned_escape_time(task, 0, 0.01):.1f}")
    625.0
    """
    require_positive("start", start)
    return 1 / (float(_modes_with(task, component).driving[component]) * start)


@checked
def aligned_time(
    task: RegressionTask, component: int, start: float, values: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    r"""The time at which an aligned head has each of the given values, in closed form.

    The head grows by $\tau\dot v = \lambda m v^2 - \lambda c v^5$ (paper eq. 21).
    With $x = v/v_\infty$, $\frac{1}{x^2(1-x^3)} = \frac{1}{x^2} + \frac{x}{1-x^3}$, so
    $t/\tau = \frac{1}{\lambda m v_\infty}\,[F(x) - F(x_0)]$,
    $F(x) = -\frac1x - \frac13\ln(1-x) + \frac16\ln(1+x+x^2) - \frac{1}{\sqrt3}\arctan\frac{2x+1}{\sqrt3}$:
    a hyperbolic escape, then an exponential rest.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.
    - `start`: v(0), above 0 and below the end, `aligned_end`.
    - `values`: the values v to be reached, from `start` to below the end.

    **Returns:** the time of each of `values`, in units of τ.

    **Example:** most of the time passes while the head is small.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.aligned_time(task, 0, 0.01, np.array([0.01, 0.1, 1.0, 1.3])).round(1).tolist()
    [0.0, 562.5, 620.5, 627.4]
    """
    end, rate = _scales(task, component, start)
    if np.any(values < start) or np.any(values >= end):
        raise InvalidInput(
            f"values must be at least the start, {start:.3g}, and below the end, {end:.3g}, which is never reached"
        )
    return (_primitive(scipy.special.logit(values / end)) - _primitive(scipy.special.logit(start / end))) / rate


@checked
def aligned_value(
    task: RegressionTask, component: int, start: float, times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    r"""The value of an aligned head at each of the given times: the inverse of `aligned_time`.

    By bisection on the log odds of $v/v_\infty$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.
    - `start`: v(0), above 0 and below the end, `aligned_end`.
    - `times`: the times, in units of τ and in any order.

    **Returns:** v at each of `times`; the start at times up to 0.

    **Example:** a head that starts at 0.01 and comes to rest at 1.31.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.aligned_value(task, 0, 0.01, np.array([0.0, 500.0, 1000.0])).round(3).tolist()
    [0.01, 0.05, 1.31]
    """
    end, rate = _scales(task, component, start)
    first = scipy.special.logit(start / end)
    wanted = _primitive(first) + rate * times
    low = np.full(times.shape, first)
    # For odds p > 0, F > p/3 - 3, so this lies above every solution; past 2^10 expit is 1.
    high = np.minimum(3 * np.maximum(wanted, 0.0) + 10.0, 2.0**10)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = _primitive(middle) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(times > 0, end * scipy.special.expit((low + high) / 2), start)


def _primitive(odds):
    """F of `aligned_time` at x = expit(odds): in log odds 1 - x keeps its digits."""
    x = scipy.special.expit(odds)
    rest = np.log1p(x + x**2) / 6 - np.arctan((2 * x + 1) / np.sqrt(3)) / np.sqrt(3)
    return -1 / x + np.logaddexp(0.0, odds) / 3 + rest


def _scales(task: RegressionTask, component: int, start: float) -> tuple[float, float]:
    require_positive("start", start)
    end = aligned_end(task, component)
    if start >= end:
        raise InvalidInput(f"start is {start:.3g}; it must be below the end, {end:.3g}")
    return end, end * float(modes(task).driving[component])


def _modes_with(task: RegressionTask, component: int) -> Modes:
    eigenmodes = modes(task)
    if not 0 <= component < eigenmodes.variances.size:
        raise InvalidInput(f"component is {component}; components count from 0 to {eigenmodes.variances.size - 1}")
    return eigenmodes
