"""The end of the flow: how fast winners settle, losers die and what is off task fades."""

from typing import NamedTuple, Unpack

import numpy as np
from jaxtyping import Float

from .._task import MultiTask
from ._limit import flow_limit
from ._numbers import Training, numbers, speeds


class LateRates(NamedTuple):
    r"""Rates of the two modes about `flow_limit`, and `slow` where μ is much faster than ω."""

    slow: Float[np.ndarray, " task"]
    fast: Float[np.ndarray, " task"]
    slow_if_mu_is_fast: Float[np.ndarray, " task"]


def late_rates(task: MultiTask, **training: Unpack[Training]) -> LateRates:
    r"""Rates $(\tau\mp\sqrt{\tau^2-4D})/2$ at which (log ω, log μ) of a winning head settle.

    $\tau = A\tfrac{1+3\rho}{1+\rho}+B$, $D = \tfrac{2AB\rho}{1+\rho}$, $A = \tfrac{2c_\ell s\lambda\sqrt d}{1+\rho}$,
    $B = 2c_\ell\lambda\sqrt d$. If B is much larger than A the slow rate is $4c_\ell s\lambda\sqrt d\,\rho/(1+\rho)^2$.
    """
    constants, rates = numbers(task), speeds(task, **training)
    rho, drive = constants.rho, constants.strengths * np.sqrt(constants.dims)
    a, b = rates.scores * drive / (1 + rho), rates.values * drive
    tau, determinant = a * (1 + 3 * rho) / (1 + rho) + b, 2 * a * b * rho / (1 + rho)
    fast = (tau + np.sqrt(tau**2 - 4 * determinant)) / 2
    return LateRates(determinant / fast, fast, 2 * a * rho / (1 + rho))


def losing_head_rate(
    task: MultiTask, relative_omega: Float[np.ndarray, "*lead task"], **training: Unpack[Training]
) -> Float[np.ndarray, "*lead task"]:
    r"""d log μ/dt of a small head once another has won task i: $2c_\ell S_i\omega^*(1-c)\,(x - e^{x-1})$.

    x is its ω over the winner's, `relative_omega`, and $1-c = \rho_i/(1+\rho_i)$. Negative for every x but 1: losers
    die exponentially.
    """
    constants = numbers(task)
    drive = (
        speeds(task, **training).values * constants.signal * constants.dims**-0.5 * constants.rho / (1 + constants.rho)
    )
    return drive * (relative_omega - np.exp(relative_omega - 1))


def off_task_fading(task: MultiTask, **training: Unpack[Training]) -> Float[np.ndarray, " task"]:
    r"""$K_i = \tfrac{2c_\ell s\,e}L\,S_i\phi_i\mu_i^2$: $d(1/\omega_j)/dt$ of other tasks j in the winner of task i.

    A power law: the loss approaches `flow_limit_loss` as $t^{-2}$, however fast the rest is.
    """
    constants = numbers(task)
    mu = flow_limit(task).mu
    return speeds(task, **training).scores * np.e / constants.context * constants.signal * constants.phi * mu**2
