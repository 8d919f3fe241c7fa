"""The loss of an effective map A, ŷ = βᵀ A x_q, and its minimum."""

import numpy as np
from jaxtyping import Float

from .._task import RegressionTask
from ._moments import cross_moment, label_power, second_moment


def loss_at(task: RegressionTask, effective_map: Float[np.ndarray, "dim dim"]) -> float:
    r"""$L(A) = \mathrm{tr}(\Omega\Lambda) - 2\,\mathrm{tr}(A^\top M \Lambda) + \mathrm{tr}(A^\top C A \Lambda)$.

    `effective_map` is A: $\sum_i v_i U_i$ for merged attention, $\sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate.
    """
    gradient = second_moment(task) @ effective_map - 2 * cross_moment(task)
    return label_power(task) + float(np.sum(effective_map * (gradient @ task.covariance)))


def minimiser(task: RegressionTask) -> Float[np.ndarray, "dim dim"]:
    r"""$A^* = C^{-1} M$; in the paper's case $(\Lambda + (\Lambda + \mathrm{tr}(\Lambda) I)/N)^{-1}$.

    Where merged attention ends: least squares in context, shrunk for a finite context.
    Of least norm where $\Lambda$ is singular, since the loss does not depend on A there.
    """
    return np.linalg.lstsq(second_moment(task), cross_moment(task))[0]


def minimal_loss(task: RegressionTask) -> float:
    r"""The loss of the `minimiser`, $L(A^*) = \mathrm{tr}(\Omega\Lambda) - \mathrm{tr}(A^{*\top} M \Lambda)$."""
    return label_power(task) - float(np.sum(minimiser(task) * (cross_moment(task) @ task.covariance)))
