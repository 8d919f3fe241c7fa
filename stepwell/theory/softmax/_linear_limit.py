"""Linear attention on the same task: softmax attention with its exponential made linear."""

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import MultiTask
from ._numbers import task_numbers
from ._spectral import gram, loss_with_overlaps


@checked
def linear_heads_loss(
    task: MultiTask, omega: Float[np.ndarray, "*lead head task"], mu: Float[np.ndarray, "*lead head task"]
) -> Float[np.ndarray, "*lead task"]:
    r"""The loss of linear attention heads with given weights, exact in d and L.

    A head that attends by $\tfrac1Lx_l^\top w$ instead of a softmax gives, with $c_i = \sum_h\mu_i^h\omega_i^h$,

    $\ell_i = \lambda_id_i\big[(1-c_i)^2 + \tfrac{\phi_i}L\sum_{hh'}\mu_i^h\mu_i^{h'}\langle\omega^h,\omega^{h'}\rangle
    + c_i^2/L\big]$.

    Without the last term, of relative order $1/d_i$, that is `spectral_loss` with $e^x$ replaced by x. Where heads
    serve one task each, the variance is $c_i^2(d_i\phi_i+1)/L$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: $\omega_i^h$ (…, head, task), the eigenvalue of head h's scores on the coordinates of task i, including
      the scale of the scores.
    - `mu`: $\mu_i^h$ (…, head, task), the factor with which the labels of task i that head h attends to enter output i.

    **Returns:** the loss of each task in the last axis, after the leading axes of the weights.

    **Example:** only the product of ω and μ matters to one linear head of one task.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> for omega, mu in ((0.3, 3.0), (0.1, 9.0)):
    ...     loss = sw.theory.softmax.linear_heads_loss(task, np.array([[omega]]), np.array([[mu]]))
    ...     print(loss.round(3).tolist())
    [0.991]
    [0.991]
    """
    c = np.sum(mu * omega, axis=-2)
    return (
        loss_with_overlaps(task, omega, mu, gram(task, omega))
        + task_numbers(task).signal * c**2 / task_numbers(task).context
    )


@checked
def linear_attention_loss(task: MultiTask) -> Float[np.ndarray, " task"]:
    r"""The least loss of linear attention on each task, exact in d and L.

    It is $S_i\nu_i/(1+\nu_i)$, $\nu_i = (d_i\phi_i+1)/L$. To leading order in $d_i$, ν is $d_i\phi_i/L$: that of
    `lower_bound` with more heads than tasks, and of `sign_pair_loss` as its heads become flat.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the loss of each task.

    **Example:** softmax attention at the limit of the flow is worse.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> sw.theory.softmax.linear_attention_loss(task).round(3).tolist()
    [1.071]
    >>> sw.theory.softmax.flow_limit_loss(task).round(3).tolist()
    [2.302]
    """
    constants = task_numbers(task)
    nu = (constants.dims * constants.phi + 1) / constants.context
    return constants.signal * nu / (1 + nu)
