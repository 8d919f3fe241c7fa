"""The best that one head can do for several tasks."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._task import MultiTask
from ._numbers import numbers
from ._water_filling import filled_shares, loss_of_shares


class SingleHead(NamedTuple):
    """Weights of one head, and the spectral loss of each task."""

    omega: Float[np.ndarray, " task"]
    mu: Float[np.ndarray, " task"]
    loss: Float[np.ndarray, " task"]


def single_head_optimum(task: MultiTask) -> SingleHead:
    r"""The least spectral loss of a single head, in closed form.

    With the best μ the loss is $\sum_i S_i/(1+Ls_i/\phi_i)$, $s_i = \omega_i^2e^{-B}$, $B = \sum_jd_j\omega_j^2$. The
    budget $\sum_id_is_i = Be^{-B}$ is largest at B = 1, so it is 1/e, and is divided by `filled_shares`:
    $\xi_i = Ls_i = (\theta\sqrt{\lambda_i\phi_i}-\phi_i)_+$. Tasks with a large $\sqrt{\phi_i/\lambda_i}$ may get
    nothing. Then $\omega_i = \sqrt{e\xi_i/L}$, $\mu_i = \omega_i/(\omega_i^2+e\phi_i/L)$.
    """
    constants = numbers(task)
    shares = filled_shares(task, 1 / np.e)
    omega = np.sqrt(np.e * shares / constants.dims)
    return SingleHead(
        omega, omega / (omega**2 + np.e * constants.phi / constants.context), loss_of_shares(task, shares)
    )
