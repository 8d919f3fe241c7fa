"""The best that one head can do for several tasks."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import MultiTask
from ._numbers import task_numbers
from ._water_filling import filled_shares, loss_of_shares


class SingleHead(NamedTuple):
    """Weights of one head, and the spectral loss of each task."""

    omega: Float[np.ndarray, " task"]
    mu: Float[np.ndarray, " task"]
    loss: Float[np.ndarray, " task"]


@checked
def single_head_optimum(task: MultiTask) -> SingleHead:
    r"""The least spectral loss of a single head on all tasks, in closed form.

    With the best μ the loss is $\sum_i S_i/(1+Ls_i/\phi_i)$, $s_i = \omega_i^2e^{-B}$, $B = \sum_jd_j\omega_j^2$. The
    budget $\sum_id_is_i = Be^{-B}$ is largest at B = 1, so it is 1/e, and is divided by `filled_shares`:
    $\xi_i = Ls_i = (\theta\sqrt{\lambda_i\phi_i}-\phi_i)_+$. Tasks with a large $\sqrt{\phi_i/\lambda_i}$ may get
    nothing. Then $\omega_i = \sqrt{e\xi_i/L}$, $\mu_i = \omega_i/(\omega_i^2+e\phi_i/L)$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** `SingleHead` with the best `omega` and `mu`, and the `loss`, for each task.

    **Example:** a weak task is left out, and its loss stays at its signal, $\lambda_id_i = 0.1$.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10, 10), (1.0, 0.01), context=100)
    >>> best = sw.theory.softmax.single_head_optimum(task)
    >>> best.omega.round(3).tolist(), best.loss.round(3).tolist()
    ([0.316, 0.0], [2.137, 0.1])
    """
    constants = task_numbers(task)
    shares = filled_shares(task, 1 / np.e)
    omega = np.sqrt(np.e * shares / constants.dims)
    return SingleHead(
        omega, omega / (omega**2 + np.e * constants.phi / constants.context), loss_of_shares(task, shares)
    )
