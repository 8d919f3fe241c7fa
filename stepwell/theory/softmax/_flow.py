"""Gradient flow of the weights of all heads on the spectral loss."""

from typing import NamedTuple, Unpack

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import integrate, require_times
from .._task import MultiTask
from ._numbers import FlowOptions, TaskNumbers, require_weights, speeds, task_numbers
from ._spectral import spectral_loss

_SCALE = 1e-2
"""Scale of the logarithms that are integrated: with the solver's 1e-8 they are exact to about 1e-10."""


class SpectralWeights(NamedTuple):
    r"""$\omega_i^h$ and $\mu_i^h$, or their velocities."""

    omega: Float[np.ndarray, "*lead head task"]
    mu: Float[np.ndarray, "*lead head task"]


class FlowCourse(NamedTuple):
    """Weights, and the spectral loss of each task, at given times."""

    omega: Float[np.ndarray, "time head task"]
    mu: Float[np.ndarray, "time head task"]
    loss: Float[np.ndarray, "time task"]


@checked
def spectral_velocity(
    task: MultiTask,
    omega: Float[np.ndarray, "head task"],
    mu: Float[np.ndarray, "head task"],
    *,
    omega_imbalance: Float[np.ndarray, "head task"] | None = None,
    mu_imbalance: Float[np.ndarray, "head task"] | None = None,
    **training: Unpack[FlowOptions],
) -> SpectralWeights:
    r"""The velocities dω/dt and dμ/dt where keys, queries, values and outputs descend the spectral loss.

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
    - `omega`: $\omega_i^h$ (head, task), the eigenvalue of head h's scores on the coordinates of task i, including the
      scale of the scores.
    - `mu`: $\mu_i^h$ (head, task), the factor with which the labels of task i that head h attends to enter output i.
    - `omega_imbalance`: $s(k^2-q^2)$ of each entry of `omega`; by default 0.
    - `mu_imbalance`: $o^2-v^2$ of each entry of `mu`; by default 0.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** `SpectralWeights` with the velocities `omega` and `mu`, each (head, task), per unit of the time of the
    flow (`FlowOptions`).

    **Example:** the limit of the flow is a fixed point.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> theory, task = sw.theory.softmax, sw.tasks.MultiTaskRegression((10, 20), context=100)
    >>> omega, mu = (theory.as_heads(weights) for weights in theory.flow_limit(task))
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
    omega: Float[np.ndarray, "head task"],
    mu: Float[np.ndarray, "head task"],
    times: Float[np.ndarray, " time"],
    *,
    omega_imbalance: Float[np.ndarray, "head task"] | None = None,
    mu_imbalance: Float[np.ndarray, "head task"] | None = None,
    **training: Unpack[FlowOptions],
) -> FlowCourse:
    r"""The course of the gradient flow of `spectral_velocity` from given weights at time 0.

    What is integrated is log ω, or arsinh(2ω/|δ|) where there is an imbalance δ: both have the same velocity, whose
    size does not depend on that of ω. Balanced weights keep their sign, and those at 0 stay there.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: $\omega_i^h$ at time 0; see `spectral_velocity`.
    - `mu`: $\mu_i^h$ at time 0.
    - `times`: the times at which weights are returned, increasing and at least 0, in the time of the flow
      (`FlowOptions`).
    - `omega_imbalance`: $s(k^2-q^2)$ of each entry of `omega`; by default 0.
    - `mu_imbalance`: $o^2-v^2$ of each entry of `mu`; by default 0.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** `FlowCourse` with the weights `omega` and `mu` (time, head, task), and the spectral `loss` (time,
    task).

    **Example:** two heads, each of which starts stronger on one of the two tasks.

    >>> import numpy as np
    >>> import stepwell as sw
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
    moving = (unbalanced | (start != 0)).astype(float).reshape(-1, omega.shape[1])
    any_unbalanced = np.any(unbalanced)

    def weights(state: np.ndarray) -> np.ndarray:
        # Beyond this a trial step of the solver has left what float64 can hold.
        state = np.minimum(state, 300.0).reshape(*state.shape[:-1], *start.shape)
        return (
            np.where(unbalanced, half * np.sinh(state), sign * np.exp(state))
            if any_unbalanced
            else sign * np.exp(state)
        )

    def field(state: np.ndarray) -> np.ndarray:
        velocity = _log_rates(constants, *rates, *weights(state))
        return (np.concatenate(velocity) * moving).ravel()

    begun = np.where(
        unbalanced,
        np.arcsinh(start / np.where(unbalanced, half, 1.0)),
        np.log(np.abs(np.where(start == 0, 1.0, start))),
    ).ravel()
    path = begun[None]
    if times[-1] > 0:
        with np.errstate(over="ignore", invalid="ignore"):
            path = integrate(field, begun, float(times[-1]), times=times, scale=_SCALE).states
    course = weights(path)
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
