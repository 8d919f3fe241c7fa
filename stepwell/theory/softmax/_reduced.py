"""One head and one task: the nullcline of μ, and the one equation left where μ is fast."""

from typing import NamedTuple, Unpack

import numpy as np
from jaxtyping import Float

from .._integrate import integrate, require_positive, require_times
from .._task import MultiTask
from ._flow import spectral_flow
from ._limit import as_heads
from ._numbers import Training, numbers, speeds


class SingleHeadCourse(NamedTuple):
    """Weights of the head of each task, and the spectral loss of the task, at given times."""

    omega: Float[np.ndarray, "time task"]
    mu: Float[np.ndarray, "time task"]
    loss: Float[np.ndarray, "time task"]


def nullcline(task: MultiTask, omega: Float[np.ndarray, "*lead task"]) -> Float[np.ndarray, "*lead task"]:
    r"""$\mu^\star(\omega) = \omega/(\omega^2+r)$, $r = \phi_ie^{d_i\omega^2}/L$: where dμ/dt = 0, for a head that
    serves task i alone.
    """
    return omega / (omega**2 + _variance(task, omega))


def reduced_velocity(
    task: MultiTask, omega: Float[np.ndarray, "*lead task"], **training: Unpack[Training]
) -> Float[np.ndarray, "*lead task"]:
    r"""dω/dt with μ on its nullcline: $2c_\ell s\lambda_i\,\omega^2(1-d_i\omega^2)\,r/(\omega^2+r)^2$.

    It needs μ to be fast, `mu_lag` well below 1.
    """
    constants, r = numbers(task), _variance(task, omega)
    drive = speeds(task, **training).scores * constants.strengths
    return drive * omega**2 * (1 - constants.dims * omega**2) * r / (omega**2 + r) ** 2


def reduced_course(
    task: MultiTask, omega: Float[np.ndarray, " task"], times: Float[np.ndarray, " time"], **training: Unpack[Training]
) -> Float[np.ndarray, "time task"]:
    """ω of each task at `times`, from initial `omega`, by integrating `reduced_velocity`."""
    require_times(times)
    require_positive("the smallest omega", float(np.min(omega)))

    def field(_: float, log: np.ndarray) -> np.ndarray:
        return reduced_velocity(task, np.exp(log), **training) * np.exp(-log)

    if times[-1] == 0:
        return omega[None].copy()
    points = times if times[0] == 0 else np.concatenate([[0.0], times])
    path = integrate(field, np.log(omega), float(times[-1]), times=points, scale=1e-2).y.T
    return np.exp(path[-times.size :])


def single_head_course(
    task: MultiTask,
    omega: Float[np.ndarray, " task"],
    mu: Float[np.ndarray, " task"],
    times: Float[np.ndarray, " time"],
    **training: Unpack[Training],
) -> SingleHeadCourse:
    r"""The flow where each task has one head, and the heads have nothing else.

    $\dot\omega = 2c_\ell s\lambda\,\omega\mu[(1-\mu\omega) - d\mu\omega r]$,
    $\dot\mu = 2c_\ell\lambda d\,\mu[\omega - \mu(\omega^2+r)]$, $r = \phi e^{d\omega^2}/L$: such heads do not interact.
    """
    course = spectral_flow(task, as_heads(omega), as_heads(mu), times, **training)
    return SingleHeadCourse(
        np.diagonal(course.omega, axis1=1, axis2=2), np.diagonal(course.mu, axis1=1, axis2=2), course.loss
    )


def mu_lag(task: MultiTask, **training: Unpack[Training]) -> Float[np.ndarray, " task"]:
    r"""$\kappa_i = Ls/(\phi_id_i)$, with s the scale of the scores, $1/\sqrt{d_e}$: how far μ lags its nullcline.

    `reduced_velocity` holds for κ well below 1. With the numbers of the paper's Fig. 3, κ is 1.8.
    """
    constants, rates = numbers(task), speeds(task, **training)
    return constants.context * rates.scores / (rates.values * constants.phi * constants.dims)


def _variance(task: MultiTask, omega: np.ndarray) -> np.ndarray:
    constants = numbers(task)
    return constants.phi * np.exp(constants.dims * omega**2) / constants.context
