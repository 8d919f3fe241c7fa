"""Population moments of the query and of the context statistic β = (1/N) Σ y_n x_n."""

from typing import NamedTuple, cast

import numpy as np

from stepwell._util.arguments import checked

from .._task_protocols import LinearTask, RegressionTask, gaussian_second_moment, own_moments
from .._types import Matrix


@checked
def mean_inverse_length(task: LinearTask) -> float:
    r"""Return the mean inverse context length, $\nu = \sum_n \pi_n / n$, which is 1/N when there is one length.

    The length enters the moments only through 1/n, so a mixture of lengths acts as one length $1/\nu$.

    **Arguments:**

    - `task`: the regression, of which only the context lengths are read.

    **Returns:** $\nu$, a number above 0 and at most 1.

    **Example:** contexts of 10 and of 40 pairs, equally likely, act as contexts of 16.

    >>> from stepwell import theory
    >>> task = theory.Regression(np.eye(1), np.eye(1), 0.0, theory.Lengths.uniform([10, 40]))
    >>> print(f"{1 / theory.linear.mean_inverse_length(task):.1f}")
    16.0
    """
    return float(sum(p / n for n, p in zip(task.context.counts, task.context.probabilities, strict=True)))


class TaskMoments(NamedTuple):
    r"""Moments of a task: `input` $\Lambda$, `cross` $M$, `second` $C$, and `label_power` $\mathbb E\,y_q^2$."""

    input: Matrix
    cross: Matrix
    second: Matrix
    label_power: float


@checked
def moments(task: LinearTask) -> TaskMoments:
    r"""Return the moments of a task: all that fixed points, levels and the flow of small weights depend on.

    $\Lambda = \mathbb E[x_q x_q^\top]$, $M = \mathbb E[\beta w^\top] = \Lambda\Omega$ at any length,
    $\mathbb E\, y_q^2 = \mathrm{tr}(\Omega\Lambda)$, and with $\nu$ the `mean_inverse_length`
    $C = \mathbb E[\beta\beta^\top]
    = (1 + \nu)\,\Lambda\Omega\Lambda + \nu\,(\mathrm{tr}(\Omega\Lambda) + \sigma^2)\,\Lambda$.

    Given w, $\beta = \hat\Lambda w + \frac1N\sum_n \varepsilon_n x_n$; the first term is Isserlis' theorem for
    $\mathbb E[\hat\Lambda w w^\top \hat\Lambda]$, averaged over w. With $\Omega = I$, $\sigma = 0$ it is the paper's
    $\mathbb E[\hat\Lambda^2] = \Lambda^2 + (\Lambda + \mathrm{tr}(\Lambda) I)\Lambda/N$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** `TaskMoments`: the matrices `input` $\Lambda$, `cross` M and `second` C, of shape (dim, dim), and
    `label_power`, the loss $L_0$ of predicting zero.

    **Example:**

    >>> moments = sw.theory.linear.moments(sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 10))
    >>> moments.second.round(3).tolist(), round(moments.label_power, 3)
    ([[0.456, 0.0], [0.0, 0.216]], 1.0)
    """
    own = own_moments(task)
    if own is not None:
        lam, cross, second = (np.asarray(part, float) for part in (own.input, own.cross, own.second))
        return TaskMoments(lam, cross, second, float(own.label_power))
    known = cast(RegressionTask, task)
    lam, omega = known.covariance, known.task_covariance
    return TaskMoments(lam, lam @ omega, gaussian_second_moment(known), float(np.sum(omega * lam)))
