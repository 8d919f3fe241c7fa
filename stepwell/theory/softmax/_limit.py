"""Where the flow ends when every task has won a head of its own."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import MultiTask
from ._numbers import task_numbers


class OneHeadEach(NamedTuple):
    r"""$\omega_i$ and $\mu_i$ of the head that serves task i and no other."""

    omega: Float[np.ndarray, " task"]
    mu: Float[np.ndarray, " task"]


@checked
def flow_limit(task: MultiTask) -> OneHeadEach:
    r"""The weights at which the flow ends if every task has a head of its own.

    $\omega_i = d_i^{-1/2}$, $\mu_i = \sqrt{d_i}/(1+\rho_i)$, $\rho_i = e\phi_id_i/L$. The variance of the softmax
    weights, which grows as $e^{d_i\omega_i^2}$, stops ω where the head attends to L/e tokens, whatever the noise; noise
    only shrinks μ. The flow gets there from positive weights if the tasks are won by distinct heads (see `winners`),
    which needs at least as many heads as tasks.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** `OneHeadEach` with `omega` and `mu` of the head that serves each task; `as_heads` makes matrices of
    them.

    **Example:**

    >>> import stepwell as sw
    >>> limit = sw.theory.softmax.flow_limit(sw.tasks.MultiTaskRegression((10, 40), context=100))
    >>> limit.omega.round(3).tolist(), limit.mu.round(3).tolist()
    ([0.316, 0.158], [2.486, 3.03])
    """
    constants = task_numbers(task)
    return OneHeadEach(constants.dims**-0.5, constants.dims**0.5 / (1 + constants.rho))


@checked
def flow_limit_loss(task: MultiTask) -> Float[np.ndarray, " task"]:
    r"""The spectral loss of each task at `flow_limit`, $\lambda_id_i\,\rho_i/(1+\rho_i)$; their sum is the loss.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the loss of each task, to leading order in 1/L and $1/d_i$.

    **Example:** it falls as the context becomes longer. Before training it is 10.

    >>> import stepwell as sw
    >>> for context in (10, 100, 1000):
    ...     task = sw.tasks.MultiTaskRegression((10,), context=context)
    ...     print(context, sw.theory.softmax.flow_limit_loss(task).round(3).tolist())
    10 [7.311]
    100 [2.137]
    1000 [0.265]
    """
    constants = task_numbers(task)
    return constants.signal * constants.rho / (1 + constants.rho)


@checked
def as_heads(weights: Float[np.ndarray, " task"]) -> Float[np.ndarray, "head task"]:
    """One head for each task, with its weight on that task and none elsewhere.

    **Arguments:**

    - `weights`: ω or μ of the head of each task.

    **Returns:** the diagonal matrix (head, task), as the functions of several heads take it.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> sw.theory.softmax.as_heads(np.array([0.3, 0.2])).tolist()
    [[0.3, 0.0], [0.0, 0.2]]
    """
    return np.diag(weights)
