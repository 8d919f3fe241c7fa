"""Gradient flow on the spectral loss: of all heads, of one head and one task, and its end."""

from typing import NamedTuple, Unpack

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import IntegrationFailed, integrate, require_positive, require_times
from .._task_protocols import MultiTask
from .._types import HeadTask, LeadHeadTask, LeadTask, PerTask, PerTime
from ._limits import flow_limit
from ._losses import spectral_loss
from ._task_numbers import FlowOptions, TaskNumbers, require_weights, speeds, task_numbers

_SCALE = 1e-2
"""Scale of the logarithms that are integrated: with the solver's 1e-8 they are exact to about 1e-10."""


class SpectralWeights(NamedTuple):
    r"""$\omega_i^h$ and $\mu_i^h$, or their velocities."""

    omega: LeadHeadTask
    mu: LeadHeadTask


class FlowCourse(NamedTuple):
    """Weights, and the spectral loss of each task, at given times; of `single_head_course` of each task's head."""

    omega: Float[np.ndarray, "time *head task"]
    mu: Float[np.ndarray, "time *head task"]
    loss: Float[np.ndarray, "time task"]


@checked
def spectral_velocity(
    task: MultiTask,
    omega: HeadTask,
    mu: HeadTask,
    *,
    omega_imbalance: HeadTask | None = None,
    mu_imbalance: HeadTask | None = None,
    **training: Unpack[FlowOptions],
) -> SpectralWeights:
    r"""Return the velocities dω/dt and dμ/dt where keys, queries, values and outputs descend the spectral loss.

    Each eigenvalue is a product, $\omega = s\,kq$ (s scales the scores) and $\mu = ov$. With $k = q$ and $o = v$,

    $\dot\omega_i^h = 2c_\ell s\,\omega_i^h\big[\lambda_i\mu_i^h(1-c_i) - \tfrac1L\sum_{h'}\big(\sum_k
    \lambda_kd_k\phi_k\mu_k^h\mu_k^{h'}\big)\omega_i^{h'}e^{\langle\omega^h,\omega^{h'}\rangle}\big]$,

    $\dot\mu_i^h = 2c_\ell\,\mu_i^h\lambda_id_i\big[\omega_i^h(1-c_i)
    - \tfrac{\phi_i}L\sum_{h'}e^{\langle\omega^h,\omega^{h'}\rangle}\mu_i^{h'}\big]$, $c_i = \sum_h\mu_i^h\omega_i^h$.

    The gradient in $\omega_i$ is shared by $d_i$ equal eigenvalues. The flow conserves $k^2 - q^2$ and $o^2 - v^2$;
    where they are not zero, $2\omega$ becomes $\sqrt{4\omega^2+\delta^2}$ with $\delta = s(k^2-q^2)$, and likewise
    $2\mu$ with $\delta = o^2 - v^2$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (head, task), as in `spectral_loss`.
    - `omega_imbalance`, `mu_imbalance`: $s(k^2-q^2)$ and $o^2-v^2$ of each of them; by default 0.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** `SpectralWeights` with the velocities, per unit of the time of the flow (`FlowOptions`).

    **Example:** the limit of the flow is a fixed point.

    >>> theory, task = sw.theory.softmax, sw.tasks.MultiTaskRegression((10, 20), context=100)
    >>> omega, mu = (np.diag(weights) for weights in theory.flow_limit(task))
    >>> print(np.abs(theory.spectral_velocity(task, omega, mu)).max() < 1e-12)
    True
    >>> theory.spectral_velocity(task, omega / 2, mu).omega.round(3).tolist()
    [[0.16, 0.0], [0.0, 0.14]]
    """
    require_weights(task, omega, mu)
    constants = task_numbers(task)
    rates = _log_rates(constants, *speeds(task, **training), omega, mu)
    return SpectralWeights(
        rates.omega * np.sqrt(omega**2 + _or_zero(omega_imbalance) ** 2 / 4),
        rates.mu * np.sqrt(mu**2 + _or_zero(mu_imbalance) ** 2 / 4),
    )


@checked
def spectral_flow(
    task: MultiTask,
    omega: HeadTask,
    mu: HeadTask,
    times: PerTime,
    *,
    omega_imbalance: HeadTask | None = None,
    mu_imbalance: HeadTask | None = None,
    **training: Unpack[FlowOptions],
) -> FlowCourse:
    r"""Return the course of the gradient flow of `spectral_velocity` from given weights at time 0.

    What is integrated is log ω, or arsinh(2ω/|δ|) where there is an imbalance δ: both have the same velocity, whose
    size does not depend on that of ω. Balanced weights keep their sign, and those at 0 stay there.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (head, task) at time 0.
    - `times`: when weights are returned, increasing and at least 0, in the time of the flow (`FlowOptions`).
    - `omega_imbalance`, `mu_imbalance`: of each of them, as in `spectral_velocity`; by default 0.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** `FlowCourse`: `omega` and `mu` (time, head, task), and the spectral `loss` (time, task).

    **Example:** two heads, each of which is initially stronger on one of the two tasks.

    >>> task = sw.tasks.MultiTaskRegression((10, 10), context=100)
    >>> omega, mu = np.array([[0.008, 0.004], [0.004, 0.008]]), np.full((2, 2), 0.3)
    >>> course = sw.theory.softmax.spectral_flow(task, omega, mu, np.array([0.0, 4.0, 8.0, 100.0]))
    >>> course.loss.sum(axis=1).round(2).tolist()
    [19.93, 17.47, 4.29, 4.28]
    >>> round(float(sw.theory.softmax.flow_limit_loss(task).sum()), 2)
    4.27
    """
    require_weights(task, omega, mu)
    require_times(times)
    constants, rates = task_numbers(task), speeds(task, **training)
    start = np.stack([omega, mu])
    half = np.abs(np.stack([_or_zero(omega_imbalance) + 0 * omega, _or_zero(mu_imbalance) + 0 * mu])) / 2
    if not np.all(np.isfinite(start)) or not np.all(np.isfinite(half)):
        raise InvalidInput("initial weights have entries that are not finite; every entry must be a number")
    unbalanced, sign = half > 0, np.sign(start)
    # Of log|ω| the velocity has the sign of ω, and is 0 where ω is.
    moving = np.where(unbalanced, 1.0, sign).reshape(-1, omega.shape[1])
    any_unbalanced = np.any(unbalanced)

    def weights(state: np.ndarray) -> np.ndarray:
        # Beyond this a trial step of the solver has left what float64 can hold.
        state = np.minimum(state, 300.0).reshape(*state.shape[:-1], *start.shape)
        balanced = sign * np.exp(state)
        return np.where(unbalanced, half * np.sinh(state), balanced) if any_unbalanced else balanced

    def field(state: np.ndarray) -> np.ndarray:
        velocity = _log_rates(constants, *rates, *weights(state))
        return (np.concatenate(velocity) * moving).ravel()

    logs = np.log(np.abs(np.where(start == 0, 1.0, start)))
    begun = np.where(unbalanced, np.arcsinh(start / np.where(unbalanced, half, 1.0)), logs)
    try:
        course = weights(integrate(field, begun.ravel(), float(times[-1]), times=times, scale=_SCALE).states)
    except IntegrationFailed as error:
        raise IntegrationFailed(
            f"the flow cannot be followed from omega up to {np.abs(omega).max():.3g} and mu up to "
            f"{np.abs(mu).max():.3g}; begin with smaller weights"
        ) from error
    return FlowCourse(course[:, 0], course[:, 1], spectral_loss(task, course[:, 0], course[:, 1]))


def _log_rates(
    constants: TaskNumbers, scores: float, values: float, omega: np.ndarray, mu: np.ndarray
) -> SpectralWeights:
    """Velocities of log ω and log μ where the weights are balanced."""
    kernel = np.exp((omega * constants.dims) @ omega.T)
    error = 1 - np.sum(mu * omega, axis=0)
    powers = constants.signal * constants.phi
    together = (mu * powers) @ mu.T * kernel / constants.context
    return SpectralWeights(
        scores * (constants.strengths * mu * error - together @ omega),
        values * (constants.signal * omega * error - powers / constants.context * (kernel @ mu)),
    )


def _or_zero(imbalance: np.ndarray | None) -> np.ndarray:
    return np.zeros(1) if imbalance is None else imbalance


@checked
def nullcline(task: MultiTask, omega: LeadTask) -> LeadTask:
    r"""Return the μ at which dμ/dt = 0, for a head that serves task i alone.

    $\mu^\star(\omega) = \omega/(\omega^2+r)$, $r = \phi_ie^{d_i\omega^2}/L$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: ω of the head of each task, with the tasks in the last axis.

    **Returns:** $\mu^\star$, in the shape of `omega`.

    **Example:** at $\omega = d^{-1/2}$ it is the μ of `flow_limit`.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.nullcline(task, [[0.01], [0.1], [10**-0.5]])[:, 0].round(3).tolist()
    [0.989, 4.75, 2.486]
    >>> sw.theory.softmax.flow_limit(task).mu.round(3).tolist()
    [2.486]
    """
    return omega / (omega**2 + _variance(task, omega))


@checked
def reduced_velocity(task: MultiTask, omega: LeadTask, **training: Unpack[FlowOptions]) -> LeadTask:
    r"""Return the velocity dω/dt with μ on its nullcline.

    It is $2c_\ell s\lambda_i\,\omega^2(1-d_i\omega^2)\,r/(\omega^2+r)^2$, $r = \phi_ie^{d_i\omega^2}/L$. It needs μ to
    be fast, `mu_lag` well below 1.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: ω of the head of each task, with the tasks in the last axis.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** dω/dt, in the shape of `omega`, per unit of the time of the flow (`FlowOptions`).

    **Example:** growth is fastest near $\omega = \sqrt{\phi/L} = 0.1$, and ends at $d^{-1/2} = 0.316$.

    >>> task, omega = sw.tasks.MultiTaskRegression((10,), context=100), [[0.01], [0.1], [0.3]]
    >>> sw.theory.softmax.reduced_velocity(task, omega, embedding=30)[:, 0].round(4).tolist()
    [0.0071, 0.1639, 0.0123]
    """
    constants, r = task_numbers(task), _variance(task, omega)
    drive = speeds(task, **training).scores * constants.strengths
    return drive * omega**2 * (1 - constants.dims * omega**2) * r / (omega**2 + r) ** 2


@checked
def reduced_course(
    task: MultiTask, omega: PerTask, times: PerTime, **training: Unpack[FlowOptions]
) -> Float[np.ndarray, "time task"]:
    r"""Return the course of ω of each task by integrating `reduced_velocity`, with μ on its nullcline.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: ω of the head of each task at time 0, above 0.
    - `times`: when ω is returned, increasing and at least 0, in the time of the flow (`FlowOptions`).
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** ω at these times (time, task).

    **Example:** ω waits, then climbs to $10^{-1/2} = 0.316$.

    >>> task, times = sw.tasks.MultiTaskRegression((10,), context=100), [0.0, 1.0, 2.0, 12.0]
    >>> course = sw.theory.softmax.reduced_course(task, [0.01], times, embedding=30)
    >>> course[:, 0].round(3).tolist()
    [0.01, 0.031, 0.163, 0.316]
    """
    require_times(times)
    require_positive("the smallest omega", float(np.min(omega)))

    def field(log: np.ndarray) -> np.ndarray:
        return reduced_velocity(task, np.exp(log), **training) * np.exp(-log)

    return np.exp(integrate(field, np.log(omega), float(times[-1]), times=times, scale=_SCALE).states)


@checked
def single_head_course(
    task: MultiTask, omega: PerTask, mu: PerTask, times: PerTime, **training: Unpack[FlowOptions]
) -> FlowCourse:
    r"""Return the course of the flow where each head has weights on one task only, a task of its own.

    $\dot\omega = 2c_\ell s\lambda\,\omega\mu[(1-\mu\omega) - d\mu\omega r]$,
    $\dot\mu = 2c_\ell\lambda d\,\mu[\omega - \mu(\omega^2+r)]$, $r = \phi e^{d\omega^2}/L$: such heads do not interact.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: ω and μ of the head of each task at time 0.
    - `times`: when weights are returned, increasing and at least 0, in the time of the flow (`FlowOptions`).
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** `FlowCourse` with `omega`, `mu` and the spectral `loss`, each (time, task).

    **Example:** the settings of the paper's Fig. 3, in which μ overshoots its limit.

    >>> task, times = sw.tasks.MultiTaskRegression((10,), context=100), [0.0, 2.0, 3.0, 12.0]
    >>> initial = {"omega": [0.01], "mu": [1.0]}
    >>> course = sw.theory.softmax.single_head_course(task, **initial, times=times, embedding=30)
    >>> course.mu[:, 0].round(2).tolist(), course.loss[:, 0].round(2).tolist()
    ([1.0, 2.37, 3.93, 2.49], [9.9, 7.85, 2.88, 2.14])
    """
    course = spectral_flow(task, np.diag(omega), np.diag(mu), times, **training)
    own, served = (np.diagonal(part, axis1=1, axis2=2) for part in (course.omega, course.mu))
    return FlowCourse(own, served, course.loss)


@checked
def mu_lag(task: MultiTask, **training: Unpack[FlowOptions]) -> PerTask:
    r"""Return how far μ lags behind its nullcline: $\kappa_i = Ls/(\phi_id_i)$, with s the scale of the scores.

    `reduced_velocity` holds for κ well below 1.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** κ for each task. It does not depend on $c_\ell$.

    **Example:** the settings of the paper's Fig. 3, in which μ is not fast.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.mu_lag(task, embedding=30).round(2).tolist()
    [1.83]
    """
    constants, rates = task_numbers(task), speeds(task, **training)
    return constants.context * rates.scores / (rates.values * constants.phi * constants.dims)


def _variance(task: MultiTask, omega: np.ndarray) -> np.ndarray:
    constants = task_numbers(task)
    return constants.phi * np.exp(constants.dims * omega**2) / constants.context


class LateRates(NamedTuple):
    r"""Rates of the two modes about `flow_limit`, and `slow` where μ is much faster than ω."""

    slow: PerTask
    fast: PerTask
    slow_if_mu_is_fast: PerTask


@checked
def late_rates(task: MultiTask, **training: Unpack[FlowOptions]) -> LateRates:
    r"""Return the rates $(\tau\mp\sqrt{\tau^2-4D})/2$ at which (log ω, log μ) of a winning head settle at `flow_limit`.

    $\tau = A\tfrac{1+3\rho}{1+\rho}+B$, $D = \tfrac{2AB\rho}{1+\rho}$, $A = \tfrac{2c_\ell s\lambda\sqrt d}{1+\rho}$,
    $B = 2c_\ell\lambda\sqrt d$. If B is much larger than A the slow rate is $4c_\ell s\lambda\sqrt d\,\rho/(1+\rho)^2$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the `LateRates` for each task, per unit of the time of the flow (`FlowOptions`).

    **Example:** the settings of the paper's Fig. 3.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> rates = sw.theory.softmax.late_rates(task, embedding=30)
    >>> print(f"{rates.slow[0]:.3f} {rates.fast[0]:.2f} {rates.slow_if_mu_is_fast[0]:.3f}")
    0.674 14.57 0.776
    """
    constants, rates = task_numbers(task), speeds(task, **training)
    rho, drive = constants.rho, constants.strengths * np.sqrt(constants.dims)
    a, b = rates.scores * drive / (1 + rho), rates.values * drive
    tau, determinant = a * (1 + 3 * rho) / (1 + rho) + b, 2 * a * b * rho / (1 + rho)
    fast = (tau + np.sqrt(tau**2 - 4 * determinant)) / 2
    return LateRates(determinant / fast, fast, 2 * a * rho / (1 + rho))


@checked
def losing_head_rate(task: MultiTask, relative_omega: LeadTask, **training: Unpack[FlowOptions]) -> LeadTask:
    r"""Return the rate d log μ/dt of a small head once another head has won the task.

    It is $2c_\ell S_i\omega^*(1-c)\,(x - e^{x-1})$, with $\omega^*$ of `flow_limit` and $1-c = \rho_i/(1+\rho_i)$:
    negative for every x but 1, so that losers die exponentially.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `relative_omega`: x, the head's ω over the winner's, with the tasks in the last axis.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the rate, in the shape of `relative_omega`, per unit of the time of the flow (`FlowOptions`).

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.losing_head_rate(task, [[0.0], [0.5], [1.0]])[:, 0].round(3).tolist()
    [-0.995, -0.288, 0.0]
    """
    constants, rate = task_numbers(task), speeds(task, **training).values
    drive = rate * constants.signal * constants.dims**-0.5 * constants.rho / (1 + constants.rho)
    return drive * (relative_omega - np.exp(relative_omega - 1))


@checked
def off_task_fading(task: MultiTask, **training: Unpack[FlowOptions]) -> PerTask:
    r"""Return the constant rate $d(1/\omega_j)/dt$ at which scores of other tasks j fade in the winner of task i.

    It is $K_i = \tfrac{2c_\ell s\,e}L\,S_i\phi_i\mu_i^2$, with $\mu_i$ of `flow_limit`: $\omega_j$ falls as a power
    law, and the loss approaches `flow_limit_loss` as $t^{-2}$, however fast the rest is.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** $K_i$ of the winner of each task i, per unit of the time of the flow (`FlowOptions`).

    **Example:** the settings of the paper's Fig. 1.

    >>> task = sw.tasks.MultiTaskRegression((10, 10, 10), context=100)
    >>> sw.theory.softmax.off_task_fading(task).round(3).tolist()
    [1.227, 1.227, 1.227]
    """
    constants = task_numbers(task)
    mu = flow_limit(task).mu
    return speeds(task, **training).scores * np.e / constants.context * constants.signal * constants.phi * mu**2
