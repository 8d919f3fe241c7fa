"""How long emergence lasts."""

from typing import Unpack

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import MultiTask
from ._numbers import FlowOptions, speeds, task_numbers


@checked
def loss_drop_width(task: MultiTask, **training: Unpack[FlowOptions]) -> Float[np.ndarray, " task"]:
    r"""The duration of the drop of the loss, in which μω goes from 10 % to 90 % of its limit.

    It is about $\tfrac4{c_\ell s\lambda_i}\sqrt{\phi_i/L}$: a fit of the scaling, within a fifth of the flow where
    `mu_lag` is below 3; it fails far above.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** the duration for each task, in the time of the flow (`FlowOptions`).

    **Example:** a strong task drops faster than a weak one.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10, 10), (1.0, 0.5), context=100)
    >>> sw.theory.softmax.loss_drop_width(task).round(3).tolist()
    [0.894, 1.789]
    """
    constants = task_numbers(task)
    return 8 / (speeds(task, **training).scores * constants.strengths) * np.sqrt(constants.phi / constants.context)


@checked
def omega_climb_width(task: MultiTask, **training: Unpack[FlowOptions]) -> Float[np.ndarray, " task"]:
    r"""The duration of the climb of ω that follows the drop of the loss, from 0.2 to 0.8 of $d_i^{-1/2}$.

    It is about $L/(6c_\ell s\lambda_i\phi_id_i^{3/2})$: a fit of the scaling, within a third of the flow where it
    exceeds `loss_drop_width`. For large L the loss has dropped long before ω is near its limit.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** the duration for each task, in the time of the flow (`FlowOptions`).

    **Example:** with a long context the climb of ω takes longer than the drop of the loss.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=1600)
    >>> sw.theory.softmax.omega_climb_width(task, embedding=30).round(1).tolist()
    [23.1]
    >>> sw.theory.softmax.loss_drop_width(task, embedding=30).round(2).tolist()
    [0.27]
    """
    constants = task_numbers(task)
    return constants.context / (
        3 * speeds(task, **training).scores * constants.strengths * constants.phi * constants.dims**1.5
    )
