"""Separate key and query: the growth of one head aligned with modes, of rank one and of higher rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import integrate, require_positive, require_times
from .._task_protocols import RegressionTask
from .._types import PerTime
from ._levels import component_indices
from ._modes import Modes, modes

_BISECTIONS = 100
"""Halvings of a bracket of log odds less than 2^11 wide: beyond the last bit of a float64."""


@checked
def aligned_end(task: RegressionTask, component: int) -> float:
    r"""Return the value at which a head with $k = q = v e_d$ comes to rest, $v_\infty = (m_d/c_d)^{1/3}$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.

    **Returns:** $v_\infty$, the value of the head and the length of its key and query in the end.

    **Example:** with few pairs in the context, the head stays smaller.

    >>> for context in (10, 1000):
    ...     task = sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), context)
    ...     print(f"{sw.theory.linear.aligned_end(task, 0):.3f}")
    1.096
    1.185
    """
    return float(_modes_with(task, component).ends[component] ** (1 / 3))


@checked
def aligned_time(task: RegressionTask, component: int, initial: float, values: PerTime) -> PerTime:
    r"""Return the times at which an aligned head has each of the given values, in closed form.

    The head grows by $\tau\dot v = \lambda m v^2 - \lambda c v^5$ (paper eq. 21).
    With $x = v/v_\infty$, $\frac{1}{x^2(1-x^3)} = \frac{1}{x^2} + \frac{x}{1-x^3}$, so
    $t/\tau = \frac{1}{\lambda m v_\infty}\,[F(x) - F(x_0)]$,
    $F(x) = -\frac1x - \frac13\ln(1-x) + \frac16\ln(1+x+x^2) - \frac{1}{\sqrt3}\arctan\frac{2x+1}{\sqrt3}$:
    a hyperbolic escape, then an exponential rest.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.
    - `initial`: v(0), above 0 and below the end, `aligned_end`.
    - `values`: the values v to be reached, from `initial` to below the end.

    **Returns:** the time of each of `values`, in units of τ.

    **Example:** most of the time passes while the head is small.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.aligned_time(task, 0, 0.01, [0.01, 0.1, 1.0, 1.3]).round(1).tolist()
    [0.0, 562.5, 620.5, 627.4]
    """
    end, rate = _scales(task, component, initial)
    if np.any(values < initial) or np.any(values >= end):
        raise InvalidInput(
            f"values must be from the initial one, {initial:.3g}, to below the end, {end:.3g}, which is never reached"
        )
    return (_primitive(scipy.special.logit(values / end)) - _primitive(scipy.special.logit(initial / end))) / rate


@checked
def aligned_value(task: RegressionTask, component: int, initial: float, times: PerTime) -> PerTime:
    r"""Return the value of an aligned head at each of the given times: the inverse of `aligned_time`.

    By bisection on the log odds of $v/v_\infty$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.
    - `initial`: v(0), above 0 and below the end, `aligned_end`.
    - `times`: the times, in units of τ and in any order.

    **Returns:** v at each of `times`; the initial value at times up to 0.

    **Example:** a head that is 0.01 initially and comes to rest at 1.31.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.aligned_value(task, 0, 0.01, [0.0, 500.0, 1000.0]).round(3).tolist()
    [0.01, 0.05, 1.31]
    """
    end, rate = _scales(task, component, initial)
    first = scipy.special.logit(initial / end)
    wanted = _primitive(first) + rate * times
    low = np.full(times.shape, first)
    # For odds p > 0, F > p/3 - 3, so this lies above every solution; past 2^10 expit is 1.
    high = np.minimum(3 * np.maximum(wanted, 0.0) + 10.0, 2.0**10)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = _primitive(middle) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(times > 0, end * scipy.special.expit((low + high) / 2), initial)


def _primitive(odds):
    """F of `aligned_time` at x = expit(odds): in log odds 1 - x keeps its digits."""
    x = scipy.special.expit(odds)
    rest = np.log1p(x + x**2) / 6 - np.arctan((2 * x + 1) / np.sqrt(3)) / np.sqrt(3)
    return -1 / x + np.logaddexp(0.0, odds) / 3 + rest


def _scales(task: RegressionTask, component: int, initial: float) -> tuple[float, float]:
    require_positive("initial", initial)
    end = aligned_end(task, component)
    if initial >= end:
        raise InvalidInput(f"initial is {initial:.3g}; it must be below the end, {end:.3g}")
    return end, end * float(modes(task).driving[component])


def _modes_with(task: RegressionTask, component: int) -> Modes:
    eigenmodes = modes(task)
    component_indices([component], eigenmodes.variances.size)
    return eigenmodes


@dataclass(frozen=True)
class HeadCourse:
    """A predicted run of one head: `times` in units of τ, `loss`, `value` v(t) and `pairs` u_r(t)."""

    times: PerTime
    loss: PerTime
    value: PerTime
    pairs: Float[np.ndarray, "time pair"]


@checked
def head_course(
    task: RegressionTask, along: Sequence[int], times: PerTime, value: float, pairs: Float[np.ndarray, " pair"]
) -> HeadCourse:
    r"""Return the course of one head whose pair r lies along component $d_r$: $k_r = q_r = u_r e_{d_r}$.

    $\tau\dot v = \sum_r u_r^2 G_{d_r}$, $\tau\dot u_r = v\,u_r G_{d_r}$,
    $G_d = \lambda_d m_d - \lambda_d c_d\, v \sum_{r: d_r = d} u_r^2$; $v^2 - \sum_r u_r^2$ is conserved. For one
    balanced pair it is the scalar equation of `aligned_time`. Other heads must have none of these components.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `along`: the component $d_r$ of each pair, counted from 0 in falling order of gain.
    - `times`: the times at which the course is asked for, in units of τ; increasing, from 0 on.
    - `value`: v(0).
    - `pairs`: $u_r(0)$, of shape (pair,).

    **Returns:** the `HeadCourse`: the loss, $v(t)$ and $u_r(t)$ at `times`.

    **Example:** a head of rank two learns both components.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 31)
    >>> course = sw.theory.linear.head_course(task, [0, 1], [0.0, 500.0], 0.1, [0.1, 0.1])
    >>> course.loss.round(3).tolist(), sw.theory.linear.levels(task).round(3).tolist()
    ([0.999, 0.088], [1.0, 0.448, 0.088])
    """
    require_times(times)
    eigenmodes = modes(task)
    component_indices(along, eigenmodes.variances.size)
    if len(along) != pairs.size:
        raise InvalidInput(f"there are {pairs.size} pairs and {len(along)} components; give one for each pair")
    onto = np.zeros((pairs.size, eigenmodes.variances.size))
    onto[np.arange(pairs.size), list(along)] = 1.0

    same = onto @ onto.T
    driving, curvature = onto @ eigenmodes.driving, onto @ eigenmodes.curvature

    def field(state: np.ndarray) -> np.ndarray:
        v, u = state[0], state[1:]
        drive = driving - curvature * v * (same @ u**2)
        return np.concatenate([[u**2 @ drive], v * u * drive])

    def jacobian(state: np.ndarray) -> np.ndarray:
        v, u = state[0], state[1:]
        by_value, by_pair = -curvature * (same @ u**2), -2 * v * curvature[:, None] * same * u
        drive = driving + v * by_value
        matrix = np.empty((state.size, state.size))
        matrix[0, 0], matrix[0, 1:] = u**2 @ by_value, 2 * u * drive + u**2 @ by_pair
        matrix[1:, 0], matrix[1:, 1:] = u * (drive + v * by_value), v * (np.diag(drive) + u[:, None] * by_pair)
        return matrix

    start = np.concatenate([[value], pairs])
    small = float(np.abs(start[start != 0]).min(initial=np.abs(start).max()))
    states = integrate(field, start, float(times[-1]), jacobian=jacobian, times=times, scale=small).states
    a = states[:, :1] * (states[:, 1:] ** 2 @ onto)
    loss = eigenmodes.remains.sum() + (a - eigenmodes.ends) ** 2 @ eigenmodes.curvature
    return HeadCourse(times, loss, states[:, 0], states[:, 1:])


@checked
def new_head_time(task: RegressionTask, component: int, initial: float, target: float = np.inf) -> float:
    r"""Return the time in which a fresh head, $v = \|k\| = \|q\|$ along a component, grows from one size to another.

    Hyperbolic, $\tau\dot v = g v^2$ with $g = \lambda_d m_d$ (the paper's $\lambda_d^2$):
    $t/\tau = (1/v_0 - 1/v)/g$. This is for weights far below the end; `aligned_time` has the whole course.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.
    - `initial`: $v_0$, the initial size, above 0.
    - `target`: v, the size to be reached, not below `initial`. By default any much larger one: the head's escape,
      $t/\tau \approx 1/(gv_0)$.

    **Returns:** the time, in units of τ.

    **Example:** $(1000 - 10)/0.4^2$, and $1000/0.4^2$.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> [round(sw.theory.linear.new_head_time(task, 0, 0.001, target), 1) for target in (0.1, float("inf"))]
    [6187.5, 6250.0]
    """
    _require_growth(initial, target)
    return (1 / initial - 1 / target) / float(_modes_with(task, component).driving[component])


@checked
def new_pair_time(task: RegressionTask, component: int, value: float, initial: float, target: float) -> float:
    r"""Return the time in which a further pair, $\|k\| = \|q\|$ along a component, grows in a head of value v.

    Exponential, $\tau\dot u = v g\, u$ with $g = \lambda_d m_d$ (the paper's $\lambda_d^2$), since the value has grown
    already: $t/\tau = \ln(u/u_0)/(vg)$. This is for pairs far below the end; `head_course` has the whole course. Of a
    pair whose key and query differ, $u = \tfrac12(k + q)\cdot e_d$ grows in this way. The sign of v only decides that
    of q.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `component`: d, counted from 0 in falling order of gain.
    - `value`: v, the value of the head, of either sign but not 0.
    - `initial`: $u_0$, the initial size of the pair, above 0.
    - `target`: u, the size to be reached, not below `initial`.

    **Returns:** the time, in units of τ.

    **Example:** much sooner than a fresh head, which takes 11 000.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.new_pair_time(task, 1, value=1.2, initial=0.001, target=0.1):.1f}")
    42.6
    >>> print(f"{sw.theory.linear.new_head_time(task, 1, initial=0.001, target=0.1):.0f}")
    11000
    """
    _require_growth(initial, target)
    if value == 0:
        raise InvalidInput("value is 0; a pair escapes in this way only where the head's value has grown")
    return float(np.log(target / initial)) / (abs(value) * float(_modes_with(task, component).driving[component]))


def _require_growth(initial: float, target: float) -> None:
    require_positive("initial", initial)
    if not target >= initial:
        raise InvalidInput(f"target is {target:.3g}; it must not be below the initial size, {initial:.3g}")
