"""The loss at finite context and dimension, without approximation, where every task has a head of its choice."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.softmax_moments import softmax_moments

from .._task import MultiTask
from ._numbers import TaskNumbers, require_weights, task_numbers
from ._quadrature import mean_over_chi_squares


class ExactOptimum(NamedTuple):
    """The weights of least loss for each task alone in a head, and that loss."""

    omega: Float[np.ndarray, " task"]
    mu: Float[np.ndarray, " task"]
    loss: Float[np.ndarray, " task"]


@checked
def exact_loss(
    task: MultiTask,
    omega: Float[np.ndarray, "head task"],
    mu: Float[np.ndarray, "head task"],
    *,
    context: int | None = None,
) -> Float[np.ndarray, " task"]:
    r"""The loss of each task, exact at finite L and $d_i$, where each is served by one head (one $\mu_i^h \ne 0$).

    $\ell_i = \mathbb E_n\big\{\lambda_i\big[n_i - 2\mu_i\omega_in_i(1-R)
    + \mu_i^2\big(\tfrac{\omega_i^2n_i}{a^2}(T-R) + d_iR\big)\big] + \sigma^2\mu_i^2R\big\}$,
    $n_j\sim\chi^2_{d_j}$, $a^2 = \sum_j\omega_j^2n_j$,

    with ω of the head that serves task i, and R, T at sharpness a (`stepwell.tasks.softmax_moments`). A head may serve
    several tasks and have scores on any of them.

    $\mathbb E[n_if(a^2)]$ is $d_i$ times the mean of f with two more degrees of freedom in $n_i$, so only means of
    functions of $a^2$ are needed. Relative errors are below 1e-7.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: $\omega_i^h$ (head, task), the eigenvalue of head h's scores on the coordinates of task i, including the
      scale of the scores.
    - `mu`: $\mu_i^h$, the factor with which the labels of task i that head h attends to enter output i; at most one
      head has one that is not 0 for each task.
    - `context`: the context length at test; by default that of the task.

    **Returns:** the expected squared error of each task; the target has no noise. Of a task without a head it is
    $\lambda_id_i$.

    **Example:** the weights where training ends, whose spectral loss is 2.137.

    >>> import stepwell as sw
    >>> theory, task = sw.theory.softmax, sw.tasks.MultiTaskRegression((10,), context=100)
    >>> omega, mu = (theory.as_heads(weights) for weights in theory.flow_limit(task))
    >>> theory.exact_loss(task, omega, mu).round(3).tolist()
    [2.355]
    """
    require_weights(task, omega, mu)
    constants = task_numbers(task)
    if context is not None:
        constants = constants._replace(context=checks.whole("context", context))
    shared = np.count_nonzero(mu, axis=0) > 1
    if np.any(shared):
        raise InvalidInput(
            f"task {int(np.argmax(shared)) + 1} is served by several heads; the exact loss is known for one: set the "
            "others' mu to 0, or sample the loss with stepwell.objectives"
        )
    loss = constants.signal.copy()
    for i, h in zip(*np.nonzero(mu.T), strict=True):
        loss[i] = _served(constants, omega[h], int(i)).loss(float(mu[h, i]))
    return loss


@checked
def exact_optimum(task: MultiTask) -> ExactOptimum:
    r"""The least exact loss of a head that serves one task alone, for each task.

    The loss is quadratic in μ, so only ω is searched, in $0.2 < \omega_i\sqrt{d_i} < 5$. To leading order it is
    $d_i^{-1/2}$ (`flow_limit`).

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** `ExactOptimum` with the best `omega` and `mu`, and their exact `loss`, for each task.

    **Example:** with many pairs and few coordinates the best ω is below $d^{-1/2} = 0.316$.

    >>> import stepwell as sw
    >>> best = sw.theory.softmax.exact_optimum(sw.tasks.MultiTaskRegression((10,), context=1000))
    >>> best.omega.round(3).tolist(), best.loss.round(3).tolist()
    ([0.283], [0.314])
    """
    constants = task_numbers(task)
    omega, mu, loss = np.empty((3, len(constants.dims)))
    for i, d in enumerate(constants.dims):

        def alone(log_size: float, i: int = i, d: float = d) -> _Served:
            row = np.zeros_like(constants.dims)
            row[i] = np.exp(log_size) * d**-0.5
            return _served(constants, row, i)

        def least(log_size: float, alone=alone) -> float:
            served = alone(log_size)
            return served.loss(served.best_mu)

        best = alone(scipy.optimize.minimize_scalar(least, bounds=(np.log(0.2), np.log(5)), method="bounded").x)
        omega[i], mu[i], loss[i] = best.omega, best.best_mu, best.loss(best.best_mu)
    return ExactOptimum(omega, mu, loss)


class _Served(NamedTuple):
    r"""What a head's scores mean for one task.

    `overlap` is $\mathbb ER$. With $n_i$ size-biased, `missed` is $\mathbb ER$, the part of w that Xp lacks, and
    `spread` is $\mathbb E[(T-R)/a^2]-1$. All three vanish as 1/L, so that nothing cancels in the loss.
    """

    signal: float
    noise: float
    omega: float
    overlap: float
    missed: float
    spread: float

    @property
    def curvature(self) -> float:
        return (self.signal + self.noise) * self.overlap + self.signal * self.omega**2 * self.spread

    @property
    def best_mu(self) -> float:
        return self.signal * self.omega * (1 - self.missed) / (self.curvature + self.signal * self.omega**2)

    def loss(self, mu: float) -> float:
        c = mu * self.omega
        return self.signal * ((1 - c) ** 2 + 2 * c * self.missed) + mu**2 * self.curvature


def _served(constants: TaskNumbers, omega: np.ndarray, i: int) -> _Served:
    def moments(s: np.ndarray) -> np.ndarray:
        r, t = softmax_moments(np.sqrt(s), constants.context)
        return np.stack([r, (t - r) / s - 1])

    active = omega != 0
    scales, freedoms = omega[active] ** 2, constants.dims[active]
    overlap = mean_over_chi_squares(moments, scales, freedoms)[0] if np.any(active) else 1 / constants.context
    missed, spread = 0.0, 0.0
    if omega[i] != 0:
        missed, spread = mean_over_chi_squares(moments, scales, freedoms + 2.0 * (np.flatnonzero(active) == i))
    return _Served(constants.signal[i], constants.noise, omega[i], float(overlap), float(missed), float(spread))
