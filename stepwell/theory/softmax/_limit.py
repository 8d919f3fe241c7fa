"""Where the flow ends when every task has won a head of its own."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._task import MultiTask
from ._numbers import numbers


class OneHeadEach(NamedTuple):
    r"""$\omega_i$ and $\mu_i$ of the head that serves task i and no other."""

    omega: Float[np.ndarray, " task"]
    mu: Float[np.ndarray, " task"]


def flow_limit(task: MultiTask) -> OneHeadEach:
    r"""$\omega_i = d_i^{-1/2}$, $\mu_i = \sqrt{d_i}/(1+\rho_i)$, $\rho_i = e\phi_id_i/L$.

    The variance of the softmax weights, which grows as $e^{d_i\omega_i^2}$, stops ω where the head attends to L/e
    tokens, whatever the noise; noise only shrinks μ. The flow gets there from positive weights if the tasks are won by
    distinct heads (see `winners`), which needs at least as many heads as tasks.
    """
    constants = numbers(task)
    return OneHeadEach(constants.dims**-0.5, constants.dims**0.5 / (1 + constants.rho))


def flow_limit_loss(task: MultiTask) -> Float[np.ndarray, " task"]:
    r"""The spectral loss of each task at `flow_limit`, $\lambda_id_i\,\rho_i/(1+\rho_i)$; their sum is the loss."""
    constants = numbers(task)
    return constants.signal * constants.rho / (1 + constants.rho)


def as_heads(weights: Float[np.ndarray, " task"]) -> Float[np.ndarray, "head task"]:
    """One head for each task, with its weight on that task and none elsewhere."""
    return np.diag(weights)
