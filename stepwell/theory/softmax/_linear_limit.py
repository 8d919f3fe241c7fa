"""Linear attention on the same task: softmax attention with its exponential made linear."""

import numpy as np
from jaxtyping import Float

from .._task import MultiTask
from ._numbers import numbers
from ._spectral import gram, loss_with_overlaps


def linear_heads_loss(
    task: MultiTask, omega: Float[np.ndarray, "*lead head task"], mu: Float[np.ndarray, "*lead head task"]
) -> Float[np.ndarray, "*lead task"]:
    r"""The loss of linear attention heads with these weights, exact in d and L.

    A head that attends by $\tfrac1Lx_l^\top w$ instead of a softmax gives, with $c_i = \sum_h\mu_i^h\omega_i^h$,

    $\ell_i = \lambda_id_i\big[(1-c_i)^2 + \tfrac{\phi_i}L\sum_{hh'}\mu_i^h\mu_i^{h'}\langle\omega^h,\omega^{h'}\rangle
    + c_i^2/L\big]$.

    Without the last term, of relative order $1/d_i$, that is `spectral_loss` with $e^x$ replaced by x. Where heads
    serve one task each, the variance is $c_i^2(d_i\phi_i+1)/L$.
    """
    c = np.sum(mu * omega, axis=-2)
    return loss_with_overlaps(task, omega, mu, gram(task, omega)) + numbers(task).signal * c**2 / numbers(task).context


def linear_attention_loss(task: MultiTask) -> Float[np.ndarray, " task"]:
    r"""The least loss of linear attention on each task, exact in d and L: $S_i\nu_i/(1+\nu_i)$,
    $\nu_i = (d_i\phi_i+1)/L$.

    To leading order in $d_i$, ν is $d_i\phi_i/L$: what `lower_bound` has where heads are plenty, and `sign_pair_loss`
    as its heads become flat.
    """
    constants = numbers(task)
    nu = (constants.dims * constants.phi + 1) / constants.context
    return constants.signal * nu / (1 + nu)
