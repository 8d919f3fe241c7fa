"""One head and one task: the nullcline of μ, and the one equation left where μ is fast."""

from typing import NamedTuple, Unpack

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._integrate import integrate, require_positive, require_times
from .._task import MultiTask
from ._flow import spectral_flow
from ._limit import as_heads
from ._numbers import FlowOptions, speeds, task_numbers


class SingleHeadCourse(NamedTuple):
    """Weights of the head of each task, and the spectral loss of the task, at given times."""

    omega: Float[np.ndarray, "time task"]
    mu: Float[np.ndarray, "time task"]
    loss: Float[np.ndarray, "time task"]


@checked
def nullcline(task: MultiTask, omega: Float[np.ndarray, "*lead task"]) -> Float[np.ndarray, "*lead task"]:
    r"""The μ at which dμ/dt = 0, for a head that serves task i alone.

    $\mu^\star(\omega) = \omega/(\omega^2+r)$, $r = \phi_ie^{d_i\omega^2}/L$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: ω of the head of each task, with the tasks in the last axis.

    **Returns:** $\mu^\star$, in the shape of `omega`.

    **Example:** at $\omega = d^{-1/2}$ it is the μ of `flow_limit`.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.nullcline(task, np.array([[0.01], [0.1], [10**-0.5]]))[:, 0].round(3).tolist()
    [0.989, 4.75, 2.486]
    >>> sw.theory.softmax.flow_limit(task).mu.round(3).tolist()
    [2.486]
    """
    return omega / (omega**2 + _variance(task, omega))


@checked
def reduced_velocity(
    task: MultiTask, omega: Float[np.ndarray, "*lead task"], **training: Unpack[FlowOptions]
) -> Float[np.ndarray, "*lead task"]:
    r"""The velocity dω/dt with μ on its nullcline: $2c_\ell s\lambda_i\,\omega^2(1-d_i\omega^2)\,r/(\omega^2+r)^2$.

    $r = \phi_ie^{d_i\omega^2}/L$. It needs μ to be fast, `mu_lag` well below 1.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: ω of the head of each task, with the tasks in the last axis.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** dω/dt, in the shape of `omega`, per unit of the time of the flow (`FlowOptions`).

    **Example:** growth is fastest near $\omega = \sqrt{\phi/L} = 0.1$, and ends at $d^{-1/2} = 0.316$.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task, omega = sw.tasks.MultiTaskRegression((10,), context=100), np.array([[0.01], [0.1], [0.3]])
    >>> sw.theory.softmax.reduced_velocity(task, omega, embedding=30)[:, 0].round(4).tolist()
    [0.0071, 0.1639, 0.0123]
    """
    constants, r = task_numbers(task), _variance(task, omega)
    drive = speeds(task, **training).scores * constants.strengths
    return drive * omega**2 * (1 - constants.dims * omega**2) * r / (omega**2 + r) ** 2


@checked
def reduced_course(
    task: MultiTask,
    omega: Float[np.ndarray, " task"],
    times: Float[np.ndarray, " time"],
    **training: Unpack[FlowOptions],
) -> Float[np.ndarray, "time task"]:
    r"""The course of ω of each task by integrating `reduced_velocity`, with μ on its nullcline.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: ω of the head of each task at time 0, above 0.
    - `times`: the times at which ω is returned, increasing and at least 0, in the time of the flow
      (`FlowOptions`).
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** ω at these times (time, task).

    **Example:** ω waits, then climbs to $10^{-1/2} = 0.316$.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task, times = sw.tasks.MultiTaskRegression((10,), context=100), np.array([0.0, 1.0, 2.0, 12.0])
    >>> course = sw.theory.softmax.reduced_course(task, np.array([0.01]), times, embedding=30)
    >>> course[:, 0].round(3).tolist()
    [0.01, 0.031, 0.163, 0.316]
    """
    require_times(times)
    require_positive("the smallest omega", float(np.min(omega)))

    def field(log: np.ndarray) -> np.ndarray:
        return reduced_velocity(task, np.exp(log), **training) * np.exp(-log)

    if times[-1] == 0:
        return omega[None].copy()
    return np.exp(integrate(field, np.log(omega), float(times[-1]), times=times, scale=1e-2).states)


@checked
def single_head_course(
    task: MultiTask,
    omega: Float[np.ndarray, " task"],
    mu: Float[np.ndarray, " task"],
    times: Float[np.ndarray, " time"],
    **training: Unpack[FlowOptions],
) -> SingleHeadCourse:
    r"""The flow where each task has one head, and each head has weights on its own task only.

    $\dot\omega = 2c_\ell s\lambda\,\omega\mu[(1-\mu\omega) - d\mu\omega r]$,
    $\dot\mu = 2c_\ell\lambda d\,\mu[\omega - \mu(\omega^2+r)]$, $r = \phi e^{d\omega^2}/L$: such heads do not interact.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: ω of the head of each task at time 0.
    - `mu`: μ of the head of each task at time 0.
    - `times`: the times at which weights are returned, increasing and at least 0, in the time of the flow
      (`FlowOptions`).
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** `SingleHeadCourse` with `omega`, `mu` and the spectral `loss`, each (time, task).

    **Example:** the settings of the paper's Fig. 3, in which μ overshoots its limit.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task, times = sw.tasks.MultiTaskRegression((10,), context=100), np.array([0.0, 2.0, 3.0, 12.0])
    >>> start = {"omega": np.array([0.01]), "mu": np.array([1.0])}
    >>> course = sw.theory.softmax.single_head_course(task, **start, times=times, embedding=30)
    >>> course.mu[:, 0].round(2).tolist(), course.loss[:, 0].round(2).tolist()
    ([1.0, 2.37, 3.93, 2.49], [9.9, 7.85, 2.88, 2.14])
    """
    course = spectral_flow(task, as_heads(omega), as_heads(mu), times, **training)
    return SingleHeadCourse(
        np.diagonal(course.omega, axis1=1, axis2=2), np.diagonal(course.mu, axis1=1, axis2=2), course.loss
    )


@checked
def mu_lag(task: MultiTask, **training: Unpack[FlowOptions]) -> Float[np.ndarray, " task"]:
    r"""How far μ lags behind its nullcline: $\kappa_i = Ls/(\phi_id_i)$, with s the scale of the scores.

    `reduced_velocity` holds for κ well below 1.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** κ for each task. It does not depend on $c_\ell$.

    **Example:** the settings of the paper's Fig. 3, in which μ is not fast.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.mu_lag(task, embedding=30).round(2).tolist()
    [1.83]
    """
    constants, rates = task_numbers(task), speeds(task, **training)
    return constants.context * rates.scores / (rates.values * constants.phi * constants.dims)


def _variance(task: MultiTask, omega: np.ndarray) -> np.ndarray:
    constants = task_numbers(task)
    return constants.phi * np.exp(constants.dims * omega**2) / constants.context
