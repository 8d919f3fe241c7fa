"""How good the approximations are, where the flow ends."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import MultiTask
from ._exact import exact_loss, exact_optimum
from ._first_order import first_order_loss
from ._limit import as_heads, flow_limit
from ._numbers import task_numbers
from ._spectral import spectral_loss


class ApproximationErrors(NamedTuple):
    r"""At `flow_limit`, for each task: losses over $\lambda_id_i$ by each theory, and relative errors.

    `best_omega` is ω√d and `best_mu` is μ over that of `flow_limit`, where the exact loss is least.
    """

    spectral: Float[np.ndarray, " task"]
    first_order: Float[np.ndarray, " task"]
    exact: Float[np.ndarray, " task"]
    spectral_error: Float[np.ndarray, " task"]
    first_order_error: Float[np.ndarray, " task"]
    best_omega: Float[np.ndarray, " task"]
    best_mu: Float[np.ndarray, " task"]


@checked
def approximation_errors(task: MultiTask) -> ApproximationErrors:
    r"""The losses of each task at `flow_limit` by the three theories, and the errors of the approximate ones.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
      Dimensions must be at least 3, since `first_order_loss` does not exist below.

    **Returns:** `ApproximationErrors`, for each task: the losses `spectral`, `first_order` and `exact` over
    $\lambda_id_i$, the relative errors `spectral_error` and `first_order_error`, and the weights of least exact loss
    over those of `flow_limit`, `best_omega` and `best_mu`.

    **Example:** at L = 100 the spectral loss is too low by 9 %.

    >>> import stepwell as sw
    >>> errors = sw.theory.softmax.approximation_errors(sw.tasks.MultiTaskRegression((10,), context=100))
    >>> print(f"{errors.spectral[0]:.3f} {errors.exact[0]:.3f} {errors.spectral_error[0]:.1%}")
    0.214 0.235 -9.2%
    """
    limit, best, signal = flow_limit(task), exact_optimum(task), task_numbers(task).signal
    heads = [as_heads(weights) for weights in limit]
    spectral, first_order, exact = (loss(task, *heads) for loss in (spectral_loss, first_order_loss, exact_loss))
    return ApproximationErrors(
        spectral / signal,
        first_order / signal,
        exact / signal,
        spectral / exact - 1,
        first_order / exact - 1,
        best.omega / limit.omega,
        best.mu / limit.mu,
    )
