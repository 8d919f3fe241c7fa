"""The loss to leading order: softmax weights as importance weights of a tilted Gaussian."""

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import MultiTask
from ._numbers import require_weights, task_numbers


def gram(task: MultiTask, omega: Float[np.ndarray, "*lead head task"]) -> Float[np.ndarray, "*lead head head"]:
    r"""Products of heads, $\langle\omega^h,\omega^{h'}\rangle = \sum_jd_j\omega_j^h\omega_j^{h'}$."""
    require_weights(task, omega)
    return np.einsum("...hj,j,...gj->...hg", omega, task_numbers(task).dims, omega)


@checked
def spectral_loss(
    task: MultiTask, omega: Float[np.ndarray, "*lead head task"], mu: Float[np.ndarray, "*lead head task"]
) -> Float[np.ndarray, "*lead task"]:
    r"""The loss of each task, to leading order in 1/L and $1/d_i$; their sum is the loss.

    $\ell_i = \lambda_id_i\big[(1-\sum_h\mu_i^h\omega_i^h)^2
    + \tfrac{\phi_i}L\sum_{hh'}\mu_i^h\mu_i^{h'}e^{\langle\omega^h,\omega^{h'}\rangle}\big]$,
    $\langle\omega^h,\omega^{h'}\rangle = \sum_jd_j\omega_j^h\omega_j^{h'}$, $\phi_i = 1+\sigma^2/(\lambda_id_i)$.

    The softmax weights are self-normalized importance weights of the tilt $e^{x\cdot w}$, $w = Wq$: their mean of x is
    w, their overlap between two heads is $e^{w\cdot w'}/L$, and $|q_i|^2$ is taken as $d_i$. Low by about $2/d_i$ where
    L is large, high by $O(e^{2|w|^2}/L)$ where it is not: see `exact_loss` and `approximation_errors`.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: $\omega_i^h$ (…, head, task), the eigenvalue of head h's scores on the coordinates of task i, including
      the scale of the scores.
    - `mu`: $\mu_i^h$ (…, head, task), the factor with which the labels of task i that head h attends to enter output i.

    **Returns:** the loss of each task in the last axis, after the leading axes of the weights: the expected squared
    error, without a half; the target has no noise.

    **Example:** one head for two tasks; the loss of weights 0 would be [10, 10].

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10, 10), context=100)
    >>> sw.theory.softmax.spectral_loss(task, np.array([[0.2, 0.1]]), np.array([[3.0, 2.0]])).round(2).tolist()
    [3.08, 7.06]
    """
    return loss_with_overlaps(task, omega, mu, np.exp(gram(task, omega)))


def loss_with_overlaps(
    task: MultiTask,
    omega: Float[np.ndarray, "*lead head task"],
    mu: Float[np.ndarray, "*lead head task"],
    overlaps: Float[np.ndarray, "*lead head head"],
) -> Float[np.ndarray, "*lead task"]:
    r"""$\lambda_id_i[(1-\sum_h\mu_i^h\omega_i^h)^2 + \tfrac{\phi_i}L\sum_{hh'}\mu_i^h\mu_i^{h'}E_{hh'}]$."""
    require_weights(task, omega, mu)
    constants = task_numbers(task)
    variance = np.einsum("...hi,...hg,...gi->...i", mu, overlaps, mu)
    return constants.signal * ((1 - np.sum(mu * omega, axis=-2)) ** 2 + constants.phi / constants.context * variance)
