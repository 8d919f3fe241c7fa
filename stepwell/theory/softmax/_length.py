"""Trained at one context length, tested at another."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task import MultiTask
from ._exact import exact_loss
from ._limit import as_heads, flow_limit
from ._numbers import task_numbers

DividedBy = Literal["test", "train"]
"""The context length that linear attention is divided by: that of the test, or for ever that of the training."""


@checked
def softmax_length_loss(task: MultiTask, contexts: Sequence[int]) -> Float[np.ndarray, "length task"]:
    r"""The spectral loss of `flow_limit` at other context lengths than that of training.

    $S_i\big[(\tfrac{\rho_i}{1+\rho_i})^2 + \tfrac{\rho_i}{(1+\rho_i)^2}\tfrac L{L'}\big]$ at length L', with $\rho_i$
    at the task's L. Softmax weights add up to one at any length: the loss falls to a plateau and never grows.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`; its context length L is that
      of the training.
    - `contexts`: the context lengths L' of the test.

    **Returns:** the loss (length, task).

    **Example:** trained at 100 pairs.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> sw.theory.softmax.softmax_length_loss(task, [50, 100, 1000, 10**6])[:, 0].round(3).tolist()
    [4.074, 2.302, 0.707, 0.53]
    """
    constants, lengths = task_numbers(task), _lengths(contexts)
    rho = constants.rho
    return constants.signal * ((rho / (1 + rho)) ** 2 + rho / (1 + rho) ** 2 * constants.context / lengths)


@checked
def exact_length_loss(task: MultiTask, contexts: Sequence[int]) -> Float[np.ndarray, "length task"]:
    """The `exact_loss` of `flow_limit` at other context lengths than that of training.

    The weights are those of the limit at the task's own length, one head for each task.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`; its context length L is that
      of the training.
    - `contexts`: the context lengths L' of the test.

    **Returns:** the loss (length, task), exact at finite d and L'.

    **Example:** trained at 100 pairs; compare `softmax_length_loss`.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> sw.theory.softmax.exact_length_loss(task, [50, 100, 1000])[:, 0].round(3).tolist()
    [4.208, 2.518, 0.756]
    """
    limit = flow_limit(task)
    lengths = _lengths(contexts).ravel()
    return np.stack([exact_loss(task, *map(as_heads, limit), context=int(length)) for length in lengths])


@checked
def linear_length_loss(
    task: MultiTask, contexts: Sequence[int], *, divided_by: DividedBy
) -> Float[np.ndarray, "length task"]:
    r"""The loss of linear attention at other context lengths than that of training, exact in d and L'.

    Attention answers $\hat y = \tfrac cN\sum_ly_lx_l^\top q$, and $c_i = 1/(1+(d_i\phi_i+1)/L)$ is best at the task's
    own L. Divided by the length of the test, N = L', the loss is $S_i[(1-c)^2 + c^2\tfrac{d\phi+1}{L'}]$; by that of
    the training, N = L, c becomes cL'/L, and the loss grows as $(L'/L)^2$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`; its context length L is that
      of the training.
    - `contexts`: the context lengths L' of the test.
    - `divided_by`: N, the length that attention is divided by: `"test"` for L', or `"train"` for L.

    **Returns:** the loss (length, task).

    **Example:** trained at 100 pairs.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> for divided_by in ("test", "train"):
    ...     loss = sw.theory.softmax.linear_length_loss(task, [50, 100, 1000], divided_by=divided_by)
    ...     print(loss[:, 0].round(2).tolist())
    [2.03, 1.07, 0.21]
    [3.54, 1.07, 638.19]
    """
    checks.one_of("divided_by", divided_by, get_args(DividedBy))
    constants, lengths = task_numbers(task), _lengths(contexts)
    spread = constants.dims * constants.phi + 1
    c = 1 / (1 + spread / constants.context) * (lengths / constants.context if divided_by == "train" else 1.0)
    return constants.signal * ((1 - c) ** 2 + c**2 * spread / lengths)


def _lengths(contexts: Sequence[int]) -> Float[np.ndarray, "length 1"]:
    lengths = np.array([[float(checks.whole("context", length))] for length in contexts])
    if lengths.size == 0:
        raise InvalidInput("contexts are empty; give at least one length")
    return lengths
