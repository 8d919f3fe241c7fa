"""The loss to first order in 1/L, with the size of the query averaged exactly."""

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task import MultiTask
from ._numbers import require_weights, task_numbers


@checked
def first_order_loss(
    task: MultiTask, omega: Float[np.ndarray, "*lead head task"], mu: Float[np.ndarray, "*lead head task"]
) -> Float[np.ndarray, "*lead task"]:
    r"""The loss of each task to first order in 1/L, at any $d_i$; their sum is the loss.

    $\ell_i = \lambda_i\big\{d_i(1-c_i)^2 + \tfrac{2(1-c_i)}{L}\sum_h\mu_i^h\omega_i^h M^{(1)}_{hh,i}
    + \tfrac1L\sum_{hh'}\mu_i^h\mu_i^{h'}\big(d_i\phi_iM^{(0)}_{hh'}
    + \omega_i^h\omega_i^{h'}M^{(1)}_{hh',i}\big)\big\}$,

    $c_i = \sum_h\mu_i^h\omega_i^h$, $M^{(0)}_{hh'} = \prod_j(1-2\omega_j^h\omega_j^{h'})^{-d_j/2}$,
    $M^{(1)}_{hh',i} = d_iM^{(0)}_{hh'}/(1-2\omega_i^h\omega_i^{h'})$.

    It is the delta method for a ratio of sums, averaged over $|q_j|^2 \sim \chi^2_{d_j}$. It does not saturate: it is
    better than `spectral_loss` while $e^{|w|^2}/L$ is small, and overestimates beyond. It exists only where
    $2\omega_j^h\omega_j^{h'} < 1$; elsewhere `InvalidInput` is raised.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: $\omega_i^h$ (…, head, task), the eigenvalue of head h's scores on the coordinates of task i, including
      the scale of the scores.
    - `mu`: $\mu_i^h$ (…, head, task), the factor with which the labels of task i that head h attends to enter output i.

    **Returns:** the loss of each task in the last axis, after the leading axes of the weights.

    **Example:** a flat head, for which it is nearer to the exact loss than the spectral loss is.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> theory, task = sw.theory.softmax, sw.tasks.MultiTaskRegression((10,), context=1000)
    >>> omega, mu = np.array([[0.2]]), np.array([[4.0]])
    >>> for loss in (theory.spectral_loss, theory.first_order_loss, theory.exact_loss):
    ...     print(loss(task, omega, mu).round(3).tolist())
    [0.639]
    [0.659]
    [0.658]
    """
    require_weights(task, omega, mu)
    constants = task_numbers(task)
    products = omega[..., :, None, :] * omega[..., None, :, :]
    if np.any(2 * products >= 1):
        raise InvalidInput(
            f"omega has a product of {products.max():.4g}; the expansion exists only below 1/2: use exact_loss"
        )
    zeroth = np.prod((1 - 2 * products) ** (-constants.dims / 2), axis=-1)
    first = constants.dims * zeroth[..., None] / (1 - 2 * products)
    c = np.sum(mu * omega, axis=-2)
    own = np.einsum("...hi,...hhi->...i", mu * omega, first)
    pairs = np.einsum("...hi,...gi->...hgi", mu, mu)
    spread = np.sum(pairs * (constants.dims * constants.phi * zeroth[..., None] + products * first), axis=(-3, -2))
    return constants.strengths * (constants.dims * (1 - c) ** 2 + (2 * (1 - c) * own + spread) / constants.context)
