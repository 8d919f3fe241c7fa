"""How a budget of attention is best divided among tasks."""

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked

from .._task import MultiTask
from ._numbers import task_numbers


@checked
def filled_shares(task: MultiTask, budget: float) -> Float[np.ndarray, " task"]:
    r"""The shares $d_is_i$ of least loss $\sum_i S_i/(1+Ls_i/\phi_i)$, with $0\le d_is_i\le1$ and $\sum_id_is_i = B$.

    The derivative in the share is equal for all tasks that are neither empty nor full, so that
    $s_i = \theta\sqrt{\lambda_i\phi_i/L} - \phi_i/L$ clipped to $[0, 1/d_i]$. Between the values of θ where a task
    starts to fill or is full, the shares are linear in θ and so in their sum: two corners give them exactly.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `budget`: B, above 0. A budget above the number of tasks gives every task a share of 1.

    **Returns:** the share of each task.

    **Example:** the budget of a single head goes to the stronger tasks; the weakest gets none.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10, 10, 10), (4.0, 1.0, 0.01), context=100)
    >>> sw.theory.softmax.filled_shares(task, 1 / np.e).round(3).tolist()
    [0.279, 0.089, 0.0]
    """
    constants, tasks = task_numbers(task), len(task.dims)
    budget = min(checks.number("budget", budget, least=0.0, above=True), tasks)
    slope = constants.dims * np.sqrt(constants.strengths * constants.phi / constants.context)
    offset = constants.dims * constants.phi / constants.context
    corners = np.concatenate([offset / slope, (1 + offset) / slope])
    order = np.argsort(corners, kind="stable")
    starts, fulls = np.argsort(order).reshape(2, tasks)
    # At each corner, in order. Which tasks are empty or full is known from the order, also where rounding hides it.
    corner = np.arange(2 * tasks)[:, None]
    filling = np.clip(corners[order, None] * slope - offset, 0.0, 1.0)
    shares = np.where(fulls <= corner, 1.0, np.where(starts >= corner, 0.0, filling))
    sums = shares.sum(axis=1)
    above = int(np.searchsorted(sums, budget))
    part = (budget - sums[above - 1]) / (sums[above] - sums[above - 1])
    return shares[above - 1] + part * (shares[above] - shares[above - 1])


@checked
def loss_of_shares(task: MultiTask, shares: Float[np.ndarray, "*lead task"]) -> Float[np.ndarray, "*lead task"]:
    r"""The spectral loss of each task with the best μ, from its share: $S_i/(1 + Ls_i/\phi_i)$ for shares $d_is_i$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `shares`: $d_is_i$ of each task in the last axis, from 0 to 1; see `profile_loss`.

    **Returns:** the loss of each task, in the shape of `shares`.

    **Example:** no attention, the best of one head, and all that any number of heads can give.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.loss_of_shares(task, np.array([[0.0], [1 / np.e], [1.0]])).round(3).tolist()
    [[10.0], [2.137], [0.909]]
    """
    constants = task_numbers(task)
    return constants.signal / (1 + constants.context * shares / (constants.dims * constants.phi))
