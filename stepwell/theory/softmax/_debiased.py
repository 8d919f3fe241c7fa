r"""One step of gradient descent in context, plain and debiased: what flat heads whose values add up to zero do.

The weights of a head with small scores $x_l^\top W_hq$ are $p_l^h = \tfrac1L[1 + (x_l-\bar x)^\top W_hq]$. If
$\sum_h\mu_h = 0$ the constant cancels: $\hat y = \tfrac1L\sum_ly_l(x_l-\bar x)^\top\Gamma q$ with
$\Gamma = \sum_h\mu_hW_h$ is a step of gradient descent from 0 on centered inputs, preconditioned by Γ. Centered inputs
have the second moments of $n = L-1$ pairs, plain ones of $n = L$: Wishart matrices, whose moments make all of it exact.
"""

from typing import NamedTuple

import numpy as np

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import MultiTask, RegressionTask, require_regression, the_context
from .._types import LeadTask, Matrix, PerTask
from ._bayes import bayes_risk
from ._task_numbers import task_numbers


class GradientStep(NamedTuple):
    """The learning `rate` of a step of gradient descent, and its `loss`, for each task."""

    rate: PerTask
    loss: PerTask


@checked
def gradient_step_loss(
    task: MultiTask, rate: LeadTask, *, debiased: bool = True, context: int | None = None
) -> LeadTask:
    r"""Return the loss of one step of gradient descent in context, exact in d and L.

    $S_i\big[1 - 2\eta\tfrac nL + \eta^2\tfrac nL\tfrac{n+1+d_i\phi_i}{L}\big]$ for
    $\hat y = \tfrac\eta L\sum_ly_lx_l^\top q$ with n = L, or, debiased, with $x_l - \bar x$ in place of $x_l$ and
    n = L - 1. Flat heads with $\sum_h\mu_h = 0$ are the latter, $\eta = \sum_h\mu_h\omega_h$, at any context length.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `rate`: η for each task, in the last axis.
    - `debiased`: whether the mean of the inputs is subtracted.
    - `context`: the context length at test; by default that of the task.

    **Returns:** the expected squared error, in the shape of `rate`; the target has no noise.

    **Example:** a fixed rate leaves $(1-\eta)^2$ at long contexts.

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> loss = sw.theory.softmax.gradient_step_loss
    >>> [loss(task, [0.897], context=length).round(4).tolist() for length in (10, 40, 10**6)]
    [[0.5078], [0.1432], [0.0106]]
    """
    constants, n, length = _sizes(task, debiased, context)
    return constants.signal * (
        1 + n / length * (rate**2 * (n + 1 + constants.dims * constants.phi) / length - 2 * rate)
    )


@checked
def best_gradient_step(task: MultiTask, *, debiased: bool = True) -> GradientStep:
    r"""Return the best rate of one step of gradient descent in context and its loss, exact in d and L.

    Debiased $\eta = L/(L+d_i\phi_i)$ with loss $S_i\tfrac{1+d_i\phi_i}{L+d_i\phi_i}$; plain $\eta = L/(L+1+d_i\phi_i)$
    with loss $S_i\tfrac{1+d_i\phi_i}{L+1+d_i\phi_i}$ (`linear_attention_loss`). Inputs of mean zero gain nothing by
    being centered, which costs one pair.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `debiased`: whether the mean of the inputs is subtracted.

    **Returns:** `GradientStep` with `rate` and `loss` of each task; the target has no noise.

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> [sw.theory.softmax.best_gradient_step(task, debiased=d).loss.round(4).tolist() for d in (True, False)]
    [[0.1429], [0.1398]]
    """
    constants, n, length = _sizes(task, debiased, None)
    spread = constants.dims * constants.phi
    return GradientStep(length / (n + 1 + spread), constants.signal * (1 + spread) / (n + 1 + spread))


@checked
def preconditioned_loss(task: RegressionTask, preconditioner: Matrix, *, debiased: bool = True) -> float:
    r"""Return the loss of one step of preconditioned gradient descent in context, exact in d and L.

    For $\hat y = \tfrac1L\sum_ly_l(x_l-\bar x)^\top\Gamma q$, $x \sim \mathcal N(0, \Lambda)$, $w \sim \mathcal
    N(0, \Omega)$, with $A = \Gamma\Lambda\Gamma^\top$ and n = L - 1 (or, plain, without $\bar x$ and n = L) it is

    $\mathrm{tr}\,\Omega\Lambda - \tfrac{2n}L\mathrm{tr}\,\Omega\Lambda\Gamma\Lambda
    + \tfrac n{L^2}\big[(n+1)\,\mathrm{tr}\,\Omega\Lambda A\Lambda
    + (\mathrm{tr}\,\Omega\Lambda + \sigma^2)\,\mathrm{tr}\,A\Lambda\big]$.

    **Arguments:**

    - `task`: a `RegressionTask` such as `stepwell.tasks.InContextRegression`, with one context length L.
    - `preconditioner`: Γ, a matrix (dim, dim), first the tokens' axis and then the query's.
    - `debiased`: whether the mean of the inputs is subtracted.

    **Returns:** the expected squared error; the target has no noise.

    **Example:** no preconditioner of equal eigenvalues does as well as `best_preconditioner`.

    >>> task = sw.tasks.InContextRegression(np.diag([2.0, 0.5]), context=20, task_covariance=np.eye(2) / 2)
    >>> best = sw.theory.softmax.best_preconditioner(task)
    >>> [round(sw.theory.softmax.preconditioned_loss(task, gamma), 3) for gamma in (best, 0.5 * np.eye(2))]
    [0.166, 0.259]
    """
    length, n = _lengths(task, debiased)
    if not np.all(np.isfinite(preconditioner)):
        raise InvalidInput("preconditioner has entries that are not finite; every entry must be a number")
    lam, signal = task.covariance, task.task_covariance @ task.covariance
    second = preconditioner @ lam @ preconditioner.T @ lam
    spread = (n + 1) * np.trace(signal @ second) + (np.trace(signal) + task.noise_variance) * np.trace(second)
    return float(np.trace(signal) - 2 * n / length * np.trace(signal @ preconditioner @ lam) + n / length**2 * spread)


@checked
def best_preconditioner(task: RegressionTask, *, debiased: bool = True) -> Matrix:
    r"""Return the preconditioner Γ of least `preconditioned_loss`.

    $\Gamma = \big(\tfrac{n+1}L\Omega\Lambda + \tfrac{\mathrm{tr}\,\Omega\Lambda + \sigma^2}LI\big)^{-1}\Omega$.
    Debiased, with $\Omega = I/d$, it is $(\Lambda + \kappa I)^{-1}$, $\kappa = (\mathrm{tr}\,\Lambda + d\sigma^2)/L$: a
    ridge on the covariance of the inputs, which the weights have learned.

    **Arguments:**

    - `task`: a `RegressionTask` such as `stepwell.tasks.InContextRegression`, with one context length L.
    - `debiased`: whether the mean of the inputs is subtracted.

    **Returns:** Γ, a matrix (dim, dim).

    **Example:** κ is 0.125.

    >>> task = sw.tasks.InContextRegression(np.diag([2.0, 0.5]), context=20, task_covariance=np.eye(2) / 2)
    >>> np.allclose(sw.theory.softmax.best_preconditioner(task), np.diag([1 / 2.125, 1 / 0.625]))
    True
    """
    length, n = _lengths(task, debiased)
    signal = task.task_covariance @ task.covariance
    ridge = (np.trace(signal) + task.noise_variance) / length
    if ridge == 0:
        raise InvalidInput("the labels are always 0, and every preconditioner does as well; give the task some signal")
    return np.linalg.solve((n + 1) / length * signal + ridge * np.eye(len(signal)), task.task_covariance)


@checked
def bayes_gap(task: MultiTask) -> PerTask:
    r"""Return the loss of flat heads over that of Bayes, in the limit of large d and L, $\gamma_i = \phi_id_i/L$.

    It is $S_i\gamma_i/(1+\gamma_i)$ over `bayes_risk`, both counted above the noise of the target, and falls from
    $1 + S_i/\sigma^2$, one plus the signal-to-noise ratio, at $d_i/L \to 0$ to 1 at large $d_i/L$: one step of
    gradient descent is Bayes-optimal up to a factor, which is large where labels are clean.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the ratio for each task; without noise it is infinite where $d_i \le L$.

    **Example:** a signal-to-noise ratio of 2, and ever shorter contexts.

    >>> for length in (10**7, 100, 1):
    ...     task = sw.tasks.MultiTaskRegression((100,), 1.0, length, noise_variance=0.5, convention="total")
    ...     print(sw.theory.softmax.bayes_gap(task).round(3).tolist())
    [3.0]
    [1.2]
    [1.0]
    """
    constants, risk = task_numbers(task), bayes_risk(task)
    gamma = constants.phi * constants.dims / constants.context
    flat = constants.signal * gamma / (1 + gamma)
    return np.divide(flat, risk, out=np.full_like(flat, np.inf), where=risk > 0)


def _sizes(task: MultiTask, debiased: bool, context: int | None):
    constants = task_numbers(task)
    length = constants.context if context is None else checks.whole("context", context)
    return constants, length - debiased, length


def _lengths(task: RegressionTask, debiased: bool) -> tuple[int, int]:
    require_regression(task)
    length = the_context(task)
    return length, length - debiased
