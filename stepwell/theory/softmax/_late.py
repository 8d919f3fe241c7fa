"""The end of the flow: how fast winners settle, losers die and what is off task fades."""

from typing import NamedTuple, Unpack

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import MultiTask
from ._limit import flow_limit
from ._numbers import FlowOptions, speeds, task_numbers


class LateRates(NamedTuple):
    r"""Rates of the two modes about `flow_limit`, and `slow` where μ is much faster than ω."""

    slow: Float[np.ndarray, " task"]
    fast: Float[np.ndarray, " task"]
    slow_if_mu_is_fast: Float[np.ndarray, " task"]


@checked
def late_rates(task: MultiTask, **training: Unpack[FlowOptions]) -> LateRates:
    r"""The rates $(\tau\mp\sqrt{\tau^2-4D})/2$ at which (log ω, log μ) of a winning head settle at `flow_limit`.

    $\tau = A\tfrac{1+3\rho}{1+\rho}+B$, $D = \tfrac{2AB\rho}{1+\rho}$, $A = \tfrac{2c_\ell s\lambda\sqrt d}{1+\rho}$,
    $B = 2c_\ell\lambda\sqrt d$. If B is much larger than A the slow rate is $4c_\ell s\lambda\sqrt d\,\rho/(1+\rho)^2$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** `LateRates` with the rates `slow` and `fast` and the limit `slow_if_mu_is_fast` for each task, per unit
    of the time of the flow (`FlowOptions`).

    **Example:** the settings of the paper's Fig. 3.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> rates = sw.theory.softmax.late_rates(task, embedding=30)
    >>> print(f"{rates.slow[0]:.3f} {rates.fast[0]:.2f} {rates.slow_if_mu_is_fast[0]:.3f}")
    0.674 14.57 0.776
    """
    constants, rates = task_numbers(task), speeds(task, **training)
    rho, drive = constants.rho, constants.strengths * np.sqrt(constants.dims)
    a, b = rates.scores * drive / (1 + rho), rates.values * drive
    tau, determinant = a * (1 + 3 * rho) / (1 + rho) + b, 2 * a * b * rho / (1 + rho)
    fast = (tau + np.sqrt(tau**2 - 4 * determinant)) / 2
    return LateRates(determinant / fast, fast, 2 * a * rho / (1 + rho))


@checked
def losing_head_rate(
    task: MultiTask, relative_omega: Float[np.ndarray, "*lead task"], **training: Unpack[FlowOptions]
) -> Float[np.ndarray, "*lead task"]:
    r"""The rate d log μ/dt of a small head once another head has won task i: $2c_\ell S_i\omega^*(1-c)\,(x - e^{x-1})$.

    $\omega^*$ is that of `flow_limit`, and $1-c = \rho_i/(1+\rho_i)$. The rate is negative for every x but 1: losers
    die exponentially.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `relative_omega`: x, the head's ω over the winner's, with the tasks in the last axis.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** the rate, in the shape of `relative_omega`, per unit of the time of the flow (`FlowOptions`).

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.losing_head_rate(task, np.array([[0.0], [0.5], [1.0]]))[:, 0].round(3).tolist()
    [-0.995, -0.288, 0.0]
    """
    constants = task_numbers(task)
    drive = (
        speeds(task, **training).values * constants.signal * constants.dims**-0.5 * constants.rho / (1 + constants.rho)
    )
    return drive * (relative_omega - np.exp(relative_omega - 1))


@checked
def off_task_fading(task: MultiTask, **training: Unpack[FlowOptions]) -> Float[np.ndarray, " task"]:
    r"""The constant rate $d(1/\omega_j)/dt$ at which scores of other tasks j fade in the head that has won task i.

    It is $K_i = \tfrac{2c_\ell s\,e}L\,S_i\phi_i\mu_i^2$, with $\mu_i$ of `flow_limit`: $\omega_j$ falls as a power
    law, and the loss approaches `flow_limit_loss` as $t^{-2}$, however fast the rest is.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** $K_i$ of the winner of each task i, per unit of the time of the flow (`FlowOptions`).

    **Example:** the settings of the paper's Fig. 1.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10, 10, 10), context=100)
    >>> sw.theory.softmax.off_task_fading(task).round(3).tolist()
    [1.227, 1.227, 1.227]
    """
    constants = task_numbers(task)
    mu = flow_limit(task).mu
    return speeds(task, **training).scores * np.e / constants.context * constants.signal * constants.phi * mu**2
