"""How good the approximations are, where the flow ends."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._task import MultiTask
from ._exact import exact_loss, exact_optimum
from ._first_order import first_order_loss
from ._limit import as_heads, flow_limit
from ._numbers import numbers
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


def approximation_errors(task: MultiTask) -> ApproximationErrors:
    """One row of a table of errors for each task; dimensions must be at least 3 for the first order to exist."""
    limit, best, signal = flow_limit(task), exact_optimum(task), numbers(task).signal
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
