"""Merged key and query: one abrupt drop, in D+1 scalar equations; a logistic curve where the covariance is white."""

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import Path, integrate, require_positive, require_times
from .._task_protocols import LinearTask, RegressionTask
from .._types import PerMode, PerTime
from ._context_moments import moments
from ._modes import Modes, modes

_PATIENCE = 1e6
"""The drop is waited for so many times as long as the slowest mode would take to grow."""


@dataclass(frozen=True)
class MergedCourse:
    """A predicted run: `times` in units of τ, `loss`, `value` v(t) and `key_query` u_d(t), modes as in `Modes`."""

    times: PerTime
    loss: PerTime
    value: PerTime
    key_query: Float[np.ndarray, "time mode"]


@checked
def merged_escape_rate(task: LinearTask) -> float:
    r"""Return the rate at which small weights of merged attention grow, $\|M\Lambda\|_F$.

    In the paper's case it is $\|\Lambda^2\|_F$. Zero is a strict saddle, whose lowest Hessian eigenvalue is
    $-2\|M\Lambda\|_F$, once per head.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the rate of exponential growth, per unit of $t/\tau$.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.merged_escape_rate(task):.4f}")
    0.1881
    """
    known = moments(task)
    return float(np.linalg.norm(known.cross @ known.input))


@checked
def merged_escape_time(task: LinearTask, initial_weight: float) -> float:
    r"""Return the approximate time of the drop of merged attention, $t/\tau \approx \ln(1/w_{init}) / \|M\Lambda\|_F$.

    `half_drop_time` has the time itself.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `initial_weight`: $w_{init}$, the size of the initial weights, above 0 and well below 1.

    **Returns:** the time, in units of τ.

    **Example:** initial weights a thousand times smaller only double the wait.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> [round(float(sw.theory.linear.merged_escape_time(task, size)), 1) for size in (1e-3, 1e-6)]
    [36.7, 73.4]
    """
    require_positive("initial_weight", initial_weight)
    return -np.log(initial_weight) / merged_escape_rate(task)


@checked
def merged_initial(
    task: RegressionTask, values: Float[np.ndarray, " head"], key_queries: Float[np.ndarray, "head dim dim"]
) -> tuple[float, PerMode]:
    r"""Return the initial values (v(0), u(0)) of the equations of `merged_course`, from the weights of all heads.

    Near zero $\dot v_h = \langle U_h, M\Lambda\rangle$, $\dot U_h = v_h M\Lambda$: only
    $\mu_h = \tfrac12(v_h + \langle U_h, g\rangle)$ grows, $g = M\Lambda/\|M\Lambda\|_F$. So all heads act as one, which
    begins at $v = \|\mu\|$, $U = \|\mu\|\, g$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `values`: $v_h$, of shape (head,).
    - `key_queries`: $U_h$, of shape (head, dim, dim).

    **Returns:** v(0), and $u_d(0)$ for each mode d, in the order of `modes`.

    **Example:** two heads that point along g and are balanced act as one whose value is the norm of theirs.

    >>> task = sw.tasks.InContextRegression(np.eye(2), 31)
    >>> values = np.array([0.03, 0.04])
    >>> v, u = sw.theory.linear.merged_initial(task, values, values[:, None, None] * np.eye(2) / np.sqrt(2))
    >>> round(v, 3), u.round(4).tolist()
    (0.05, [0.0354, 0.0354])
    """
    known = moments(task)
    driving = known.cross @ known.input
    unit = driving / np.linalg.norm(driving)
    growing = (values + np.einsum("hij,ij->h", key_queries, unit)) / 2
    along = modes(task).driving
    size = float(np.linalg.norm(growing))
    return size, size * along / np.linalg.norm(along)


@checked
def merged_course(task: RegressionTask, times: PerTime, value: float, key_query: PerMode) -> MergedCourse:
    r"""Return the course of merged attention from small weights, by D + 1 scalar equations.

    $\tau\dot v = \sum_d u_d r_d$, $\tau\dot u_d = v r_d$, $r_d = \lambda_d m_d - \lambda_d c_d v u_d$:
    the flow of merged attention with the map $A = \sum_d v u_d\, e_d e_d^\top$ (paper: white covariance only). The
    scalars of the task are those of `modes`.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `times`: the times at which the course is asked for, in units of τ; increasing, from 0 on.
    - `value`: v(0), for instance of `merged_initial`.
    - `key_query`: $u_d(0)$ for each mode d, in the order of `modes`.

    **Returns:** the `MergedCourse`: the loss, $v(t)$ and $u_d(t)$ at `times`.

    **Example:** one abrupt drop, from the first level to the last.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> course = sw.theory.linear.merged_course(task, [0.0, 20.0, 40.0, 400.0], 1e-3, [5e-4] * 4)
    >>> course.loss.round(3).tolist()
    [1.0, 0.999, 0.562, 0.136]
    """
    require_times(times)
    eigenmodes = modes(task)
    start = np.concatenate([[value], key_query])
    field, jacobian = _equations(eigenmodes)
    states = integrate(field, start, float(times[-1]), jacobian=jacobian, times=times).states
    # A sum of positive terms: what cannot be learned, and what is not learned yet.
    missing = states[:, :1] * states[:, 1:] - eigenmodes.ends
    loss = eigenmodes.remains.sum() + missing**2 @ eigenmodes.curvature
    return MergedCourse(times, loss, states[:, 0], states[:, 1:])


@checked
def half_drop_time(task: RegressionTask, value: float, key_query: PerMode) -> float:
    r"""Return the time at which the loss of merged attention is halfway down.

    That is $\tfrac12(L_0 + L_D)$, halfway between its first and its last level.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.
    - `value`: v(0), as in `merged_course`.
    - `key_query`: $u_d(0)$ for each mode d, in the order of `modes`. Not all of the initial weights may be zero.

    **Returns:** the time, in units of τ; 0 if the initial loss is below that, infinite if the loss does not get there.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.half_drop_time(task, 1e-3, [5e-4] * 4):.2f}")
    39.91
    """
    return _half_drop(modes(task), value, key_query).time


def drop_duration(eigenmodes: Modes, value: float, key_query: PerMode) -> float:
    r"""The time in which the loss would fall from its first to its last level as fast as it does halfway down.

    The loss falls at the rate $2(\dot v^2 + \sum_d\dot u_d^2)$. Infinite if it does not get there.
    """
    path = _half_drop(eigenmodes, value, key_query)
    velocity = _equations(eigenmodes)[0](path.state)
    return float(eigenmodes.gains.sum() / (2 * velocity @ velocity)) if path.crossed else np.inf


def _half_drop(eigenmodes: Modes, value: float, key_query: PerMode) -> Path:
    """The course to where the loss is halfway down; the time is infinite if it does not get there."""
    start = np.concatenate([[value], key_query])
    size = float(np.linalg.norm(start))
    require_positive("size of the initial weights", size)
    half = float(eigenmodes.gains.sum()) / 2

    def fallen(state: np.ndarray) -> float:
        return merged_gain(eigenmodes, state[0], state[1:]) - half

    # Far beyond the time wanted: the event ends the integration.
    slowest = float(eigenmodes.driving[eigenmodes.driving > 0].min())
    field, jacobian = _equations(eigenmodes)
    path = integrate(field, start, _PATIENCE * (1 + abs(np.log(size))) / slowest, jacobian=jacobian, event=fallen)
    return path if path.crossed else path._replace(time=np.inf)


def merged_gain(eigenmodes: Modes, value: float, key_query: PerMode) -> float:
    r"""By how much the loss is below that of zero weights, $\sum_d (2g_da_d - \lambda_dc_da_d^2)$, $a_d = vu_d$."""
    a = value * key_query
    return float(a @ (2 * eigenmodes.driving - eigenmodes.curvature * a))


def _equations(eigenmodes: Modes):
    """The field of the scalar equations, and its Jacobian."""
    driving, curvature = eigenmodes.driving, eigenmodes.curvature

    def field(state: np.ndarray) -> np.ndarray:
        v, u = state[0], state[1:]
        r = driving - curvature * v * u
        return np.concatenate([[u @ r], v * r])

    def jacobian(state: np.ndarray) -> np.ndarray:
        v, u = state[0], state[1:]
        matrix = np.diag(np.concatenate([[-curvature @ u**2], -curvature * v**2]))
        matrix[0, 1:] = matrix[1:, 0] = driving - 2 * curvature * v * u
        return matrix

    return field, jacobian


@checked
def white_course(task: RegressionTask, times: PerTime, initial_weight: float) -> MergedCourse:
    r"""Return the course of merged attention where $\Lambda = \lambda I$ and $\Omega = \omega I$, in closed form.

    The initial weights are aligned, with $\|w_2\| = \|W_1\| = w_{init}$.
    With $s = \|w_2\|\|W_1\|$, $s(0) = w_{init}^2$, $m = \lambda\omega$, $c$ as in `Modes`:
    $\tau\dot s = 2s(\sqrt D\,\lambda m - \lambda c\, s)$, so
    $s = s_\infty/(1 + (s_\infty/s(0) - 1)\, e^{-\kappa t/\tau})$ with
    $\kappa = 2\sqrt D\,\lambda m$, $s_\infty = \sqrt D\, m/c$, and $\hat y = (s/\sqrt D)\,\beta^\top x_q$.
    For $\lambda = \omega = 1$, $\sigma = 0$, $s/\sqrt D$ is the paper's eq. 10.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances are multiples of the identity.
    - `times`: the times at which the course is asked for, in units of τ; increasing, from 0 on.
    - `initial_weight`: $w_{init}$, above 0 and with its square below $s_\infty$.

    **Returns:** the `MergedCourse`: the loss, $v(t) = \sqrt s$ and $u_d(t) = \sqrt{s/D}$ at `times`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(np.eye(4), 31)
    >>> sw.theory.linear.white_course(task, np.array([0.0, 3.0, 10.0]), 0.01).loss.round(3).tolist()
    [4.0, 0.587, 0.556]
    """
    require_times(times)
    require_positive("initial_weight", initial_weight)
    eigenmodes = _white(task)
    dim = eigenmodes.variances.size
    rate, end = _logistic(eigenmodes)
    # In log odds, so that neither tiny initial weights nor a long time overflow; at or above the end there are none.
    ratio = initial_weight**2 / end
    if ratio >= 1:
        raise InvalidInput(f"initial_weight is {initial_weight}; the closed form begins below the end, {end**0.5:.3g}")
    s = end * scipy.special.expit(np.log(ratio) - np.log1p(-ratio) + rate * times)
    missing = end * scipy.special.expit(np.log1p(-ratio) - np.log(ratio) - rate * times)
    loss = eigenmodes.remains.sum() + eigenmodes.curvature[0] * missing**2
    return MergedCourse(times, loss, np.sqrt(s), np.tile(np.sqrt(s / dim)[:, None], (1, dim)))


@checked
def white_half_drop_time(task: RegressionTask, initial_weight: float) -> float:
    r"""Return the time at which the loss of merged attention on white inputs is halfway down, in closed form.

    It is halfway between the first and the last level at $s/s_\infty = 1 - 1/\sqrt2 =: x$, with $s$, $s_\infty$, κ as
    in `white_course`:
    $t/\tau = \kappa^{-1}\,[\,\mathrm{logit}(x) - \mathrm{logit}(w_{init}^2/s_\infty)\,]$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances are multiples of the identity.
    - `initial_weight`: $w_{init}$, above 0: the norm of all values, and of all merged matrices, which are aligned.

    **Returns:** the time, in units of τ; 0 if the initial loss is below that.

    **Example:** as `half_drop_time`, which integrates.

    >>> task = sw.tasks.InContextRegression(np.eye(4), 31)
    >>> time = sw.theory.linear.white_half_drop_time(task, 0.01)
    >>> print(f"{time:.3f}, {sw.theory.linear.half_drop_time(task, 0.01, np.full(4, 0.005)):.3f}")
    2.218, 2.218
    """
    require_positive("initial_weight", initial_weight)
    rate, end = _logistic(_white(task))
    ratio, half = initial_weight**2 / end, 1 - 2**-0.5
    if ratio >= half:
        return 0.0
    return float(np.log(half / (1 - half)) - np.log(ratio) + np.log1p(-ratio)) / rate


def _logistic(eigenmodes: Modes) -> tuple[float, float]:
    root = float(np.sqrt(eigenmodes.variances.size))
    return 2 * root * float(eigenmodes.driving[0]), root * float(eigenmodes.ends[0])


def _white(task: RegressionTask) -> Modes:
    eigenmodes = modes(task)
    for name, spectrum in (("covariance", eigenmodes.variances), ("task_covariance", eigenmodes.task_variances)):
        if np.ptp(spectrum) > 1e-8 * spectrum.max():
            raise InvalidInput(
                f"{name} has eigenvalues from {spectrum.min():.3g} to {spectrum.max():.3g}; the closed form needs them "
                "equal, and merged_course takes any"
            )
    return eigenmodes
