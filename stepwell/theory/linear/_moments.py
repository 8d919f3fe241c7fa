"""Population moments of the context statistic β = (1/N) Σ y_n x_n."""

import numpy as np
from jaxtyping import Float

from .._task import RegressionTask, require_one_output


def mean_inverse_length(task: RegressionTask) -> float:
    r"""$\nu = \sum_n \pi_n / n$, which is 1/N when there is one length.

    The length enters the moments only through 1/n, so a mixture of lengths acts as one length $1/\nu$.
    """
    return float(sum(p / n for n, p in zip(task.lengths.counts, task.lengths.probabilities, strict=True)))


def label_power(task: RegressionTask) -> float:
    r"""$\mathbb E\, y_q^2 = \mathrm{tr}(\Omega\Lambda)$: the loss of a model that answers zero."""
    require_one_output(task)
    return float(np.sum(task.task_covariance * task.covariance))


def cross_moment(task: RegressionTask) -> Float[np.ndarray, "dim dim"]:
    r"""$M = \mathbb E[\beta w^\top] = \Lambda\Omega$, for any context length."""
    require_one_output(task)
    return task.covariance @ task.task_covariance


def second_moment(task: RegressionTask) -> Float[np.ndarray, "dim dim"]:
    r"""$C = \mathbb E[\beta\beta^\top]
    = (1 + \nu)\,\Lambda\Omega\Lambda + \nu\,(\mathrm{tr}(\Omega\Lambda) + \sigma^2)\,\Lambda$.

    Given w, $\beta = \hat\Lambda w + \frac1N\sum_n \varepsilon_n x_n$; the first term is Isserlis' theorem for
    $\mathbb E[\hat\Lambda w w^\top \hat\Lambda]$, averaged over w. With $\Omega = I$, $\sigma = 0$ it is the paper's
    $\mathbb E[\hat\Lambda^2] = \Lambda^2 + (\Lambda + \mathrm{tr}(\Lambda) I)\Lambda/N$.
    """
    nu = mean_inverse_length(task)
    lam = task.covariance
    signal = lam @ task.task_covariance @ lam
    second = (1 + nu) * signal + nu * (label_power(task) + task.noise_variance) * lam
    return (second + second.T) / 2
