"""How long emergence lasts."""

from typing import Unpack

import numpy as np
from jaxtyping import Float

from .._task import MultiTask
from ._numbers import Training, numbers, speeds


def loss_drop_width(task: MultiTask, **training: Unpack[Training]) -> Float[np.ndarray, " task"]:
    r"""How long the drop of the loss lasts, μω going from 10 % to 90 % of its limit: about
    $\tfrac4{c_\ell s\lambda_i}\sqrt{\phi_i/L}$.

    A fit of the scaling, within a fifth of the flow where `mu_lag` is below 3; it fails far above.
    """
    constants = numbers(task)
    return 8 / (speeds(task, **training).scores * constants.strengths) * np.sqrt(constants.phi / constants.context)


def omega_climb_width(task: MultiTask, **training: Unpack[Training]) -> Float[np.ndarray, " task"]:
    r"""How long ω then climbs, from 0.2 to 0.8 of $d_i^{-1/2}$: about $L/(6c_\ell s\lambda_i\phi_id_i^{3/2})$.

    A fit of the scaling, within a third of the flow where it exceeds `loss_drop_width`. For large L the loss has
    dropped long before ω is near its limit.
    """
    constants = numbers(task)
    return constants.context / (
        3 * speeds(task, **training).scores * constants.strengths * constants.phi * constants.dims**1.5
    )
