"""Population moments of the context statistic β = (1/N) Σ y_n x_n."""

from typing import cast

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task_protocols import LinearTask, RegressionTask, own_moments


@checked
def mean_inverse_length(task: LinearTask) -> float:
    r"""The mean inverse context length, $\nu = \sum_n \pi_n / n$, which is 1/N when there is one length.

    The length enters the moments only through 1/n, so a mixture of lengths acts as one length $1/\nu$.

    **Arguments:**

    - `task`: the regression, of which only the context lengths are read.

    **Returns:** $\nu$, a number above 0 and at most 1.

    **Example:** contexts of 10 and of 40 pairs, equally likely, act as contexts of 16.

    >>> import numpy as np
    >>> from stepwell import theory
    >>> task = theory.Regression(np.eye(2), np.eye(2), 0.0, theory.Lengths.uniform([10, 40]))
    >>> print(f"{1 / theory.linear.mean_inverse_length(task):.1f}")
    16.0
    """
    return float(sum(p / n for n, p in zip(task.context.counts, task.context.probabilities, strict=True)))


@checked
def input_moment(task: LinearTask) -> Float[np.ndarray, "dim dim"]:
    r"""The second moment of the query, $\Lambda = \mathbb E[x_q x_q^\top]$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** $\Lambda$, of shape (dim, dim).

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> sw.theory.linear.input_moment(sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10)).tolist()
    [[0.6, 0.0], [0.0, 0.4]]
    """
    own = own_moments(task)
    return cast(RegressionTask, task).covariance if own is None else np.asarray(own.input, float)


@checked
def label_power(task: LinearTask) -> float:
    r"""The mean square of the target, $\mathbb E\, y_q^2 = \mathrm{tr}(\Omega\Lambda)$: the loss of answering zero.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the loss $L_0$ on the first plateau, as a mean squared error.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.label_power(task):.3f}")
    1.000
    """
    own = own_moments(task)
    if own is not None:
        return float(own.label_power)
    known = cast(RegressionTask, task)
    return float(np.sum(known.task_covariance * known.covariance))


@checked
def cross_moment(task: LinearTask) -> Float[np.ndarray, "dim dim"]:
    r"""The cross moment of context and task, $M = \mathbb E[\beta w^\top] = \Lambda\Omega$, for any context length.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** M, of shape (dim, dim).

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10, task_covariance=np.diag([2.0, 0.5]))
    >>> sw.theory.linear.cross_moment(task).round(3).tolist()
    [[1.2, 0.0], [0.0, 0.2]]
    """
    own = own_moments(task)
    if own is not None:
        return np.asarray(own.cross, float)
    known = cast(RegressionTask, task)
    return known.covariance @ known.task_covariance


@checked
def second_moment(task: LinearTask) -> Float[np.ndarray, "dim dim"]:
    r"""The second moment of the context statistic $\beta$.

    $C = \mathbb E[\beta\beta^\top]
    = (1 + \nu)\,\Lambda\Omega\Lambda + \nu\,(\mathrm{tr}(\Omega\Lambda) + \sigma^2)\,\Lambda$,
    with $\nu$ the `mean_inverse_length`.

    Given w, $\beta = \hat\Lambda w + \frac1N\sum_n \varepsilon_n x_n$; the first term is Isserlis' theorem for
    $\mathbb E[\hat\Lambda w w^\top \hat\Lambda]$, averaged over w. With $\Omega = I$, $\sigma = 0$ it is the paper's
    $\mathbb E[\hat\Lambda^2] = \Lambda^2 + (\Lambda + \mathrm{tr}(\Lambda) I)\Lambda/N$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** C, symmetric, of shape (dim, dim).

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10)
    >>> sw.theory.linear.second_moment(task).round(3).tolist()
    [[0.456, 0.0], [0.0, 0.216]]
    """
    own = own_moments(task)
    if own is not None:
        return np.asarray(own.second, float)
    known, nu = cast(RegressionTask, task), mean_inverse_length(task)
    lam = known.covariance
    signal = lam @ known.task_covariance @ lam
    second = (1 + nu) * signal + nu * (label_power(task) + known.noise_variance) * lam
    return (second + second.T) / 2
