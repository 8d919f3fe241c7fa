"""Losses in closed form: to leading order, to first order in 1/L, and of linear attention."""

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import MultiTask
from .._types import LeadHeadTask, LeadTask, PerTask
from ._task_numbers import require_weights, task_numbers


def gram(task: MultiTask, omega: LeadHeadTask) -> Float[np.ndarray, "*lead head head"]:
    r"""Products of heads, $\langle\omega^h,\omega^{h'}\rangle = \sum_jd_j\omega_j^h\omega_j^{h'}$."""
    require_weights(task, omega)
    return np.einsum("...hj,j,...gj->...hg", omega, task_numbers(task).dims, omega)


@checked
def spectral_loss(task: MultiTask, omega: LeadHeadTask, mu: LeadHeadTask) -> LeadTask:
    r"""Return the loss of each task, to leading order in 1/L and $1/d_i$; their sum is the loss.

    $\ell_i = \lambda_id_i\big[(1-\sum_h\mu_i^h\omega_i^h)^2
    + \tfrac{\phi_i}L\sum_{hh'}\mu_i^h\mu_i^{h'}e^{\langle\omega^h,\omega^{h'}\rangle}\big]$,
    $\langle\omega^h,\omega^{h'}\rangle = \sum_jd_j\omega_j^h\omega_j^{h'}$, $\phi_i = 1+\sigma^2/(\lambda_id_i)$.

    The softmax weights are importance weights of the tilt $e^{x\cdot w}$, $w = Wq$: their mean of x is w, their overlap
    between two heads $e^{w\cdot w'}/L$, and $|q_i|^2$ is taken as $d_i$. Low by about $2/d_i$ where L is large, high by
    $O(e^{2|w|^2}/L)$ where it is not (`approximation_errors`).

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: $\omega_i^h$ (…, head, task), the eigenvalue of head h's scores on task i, with the scale of the scores.
    - `mu`: $\mu_i^h$ (…, head, task), the factor with which the labels of task i that head h attends to enter output i.

    **Returns:** the loss of each task in the last axis, after the leading axes of the weights: the expected squared
    error, without a half; the target has no noise.

    **Example:** one head for two tasks; the loss of weights 0 would be [10, 10].

    >>> task = sw.tasks.MultiTaskRegression((10, 10), context=100)
    >>> sw.theory.softmax.spectral_loss(task, [[0.2, 0.1]], [[3.0, 2.0]]).round(2).tolist()
    [3.08, 7.06]
    """
    return loss_with_overlaps(task, omega, mu, np.exp(gram(task, omega)))


def loss_with_overlaps(
    task: MultiTask, omega: LeadHeadTask, mu: LeadHeadTask, overlaps: Float[np.ndarray, "*lead head head"]
) -> LeadTask:
    r"""$\lambda_id_i[(1-\sum_h\mu_i^h\omega_i^h)^2 + \tfrac{\phi_i}L\sum_{hh'}\mu_i^h\mu_i^{h'}E_{hh'}]$."""
    require_weights(task, omega, mu)
    constants = task_numbers(task)
    variance = np.einsum("...hi,...hg,...gi->...i", mu, overlaps, mu)
    return constants.signal * ((1 - np.sum(mu * omega, axis=-2)) ** 2 + constants.phi / constants.context * variance)


@checked
def first_order_loss(task: MultiTask, omega: LeadHeadTask, mu: LeadHeadTask) -> LeadTask:
    r"""Return the loss of each task to first order in 1/L, at any $d_i$; their sum is the loss.

    $\ell_i = \lambda_i\big\{d_i(1-c_i)^2 + \tfrac{2(1-c_i)}{L}\sum_h\mu_i^h\omega_i^h M^{(1)}_{hh,i}
    + \tfrac1L\sum_{hh'}\mu_i^h\mu_i^{h'}\big(d_i\phi_iM^{(0)}_{hh'}
    + \omega_i^h\omega_i^{h'}M^{(1)}_{hh',i}\big)\big\}$,

    $c_i = \sum_h\mu_i^h\omega_i^h$, $M^{(0)}_{hh'} = \prod_j(1-2\omega_j^h\omega_j^{h'})^{-d_j/2}$,
    $M^{(1)}_{hh',i} = d_iM^{(0)}_{hh'}/(1-2\omega_i^h\omega_i^{h'})$.

    The delta method for a ratio of sums, averaged over $|q_j|^2 \sim \chi^2_{d_j}$: better than `spectral_loss` while
    $e^{|w|^2}/L$ is small, and too high beyond. It exists only where $2\omega_j^h\omega_j^{h'} < 1$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (…, head, task), as in `spectral_loss`.

    **Returns:** the loss of each task in the last axis, after the leading axes of the weights.

    **Example:** a flat head, for which it is nearer to the exact loss than the spectral loss is.

    >>> theory, task = sw.theory.softmax, sw.tasks.MultiTaskRegression((10,), context=1000)
    >>> omega, mu = [[0.2]], [[4.0]]
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


@checked
def linear_heads_loss(task: MultiTask, omega: LeadHeadTask, mu: LeadHeadTask) -> LeadTask:
    r"""Return the loss of linear attention heads with given weights, exact in d and L.

    A head that attends by $\tfrac1Lx_l^\top w$ instead of a softmax gives, with $c_i = \sum_h\mu_i^h\omega_i^h$,

    $\ell_i = \lambda_id_i\big[(1-c_i)^2 + \tfrac{\phi_i}L\sum_{hh'}\mu_i^h\mu_i^{h'}\langle\omega^h,\omega^{h'}\rangle
    + c_i^2/L\big]$.

    Without the last term, of relative order $1/d_i$, that is `spectral_loss` with $e^x$ replaced by x. Where heads
    serve one task each, the variance is $c_i^2(d_i\phi_i+1)/L$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (…, head, task), as in `spectral_loss`.

    **Returns:** the loss of each task in the last axis, after the leading axes of the weights.

    **Example:** only the product of ω and μ matters to one linear head of one task.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> [sw.theory.softmax.linear_heads_loss(task, [[w]], [[0.9 / w]]).round(3).tolist() for w in (0.3, 0.1)]
    [[0.991], [0.991]]
    """
    constants, c = task_numbers(task), np.sum(mu * omega, axis=-2)
    return loss_with_overlaps(task, omega, mu, gram(task, omega)) + constants.signal * c**2 / constants.context


@checked
def linear_attention_loss(task: MultiTask) -> PerTask:
    r"""Return the least loss of linear attention on each task, exact in d and L.

    It is $S_i\nu_i/(1+\nu_i)$, $\nu_i = (d_i\phi_i+1)/L$. To leading order in $d_i$, ν is $d_i\phi_i/L$: that of
    `lower_bound` with more heads than tasks, and of `sign_pair_loss` as its heads become flat.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the loss of each task.

    **Example:** softmax attention at the limit of the flow is worse.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> sw.theory.softmax.linear_attention_loss(task).round(3).tolist()
    [1.071]
    >>> sw.theory.softmax.flow_limit_loss(task).round(3).tolist()
    [2.302]
    """
    constants = task_numbers(task)
    nu = (constants.dims * constants.phi + 1) / constants.context
    return constants.signal * nu / (1 + nu)
