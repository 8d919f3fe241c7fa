"""Levels of the loss: at every fixed point, and on the path from small initial weights."""

from collections.abc import Collection

import numpy as np
from jaxtyping import Float

from stepwell._errors import InvalidInput

from .._task import RegressionTask
from ._components import components
from ._moments import cross_moment, label_power, second_moment


def component_gains(task: RegressionTask) -> Float[np.ndarray, " component"]:
    r"""$\gamma_1 \ge \dots \ge \gamma_D$, the fall of the loss that each component brings (see `components`).

    In the paper's case $\gamma_d = \lambda_d / (1 + (1 + \mathrm{tr}\Lambda/\lambda_d)/N)$.
    """
    return components(task).gains


def level(task: RegressionTask, learned: Collection[int]) -> float:
    r"""$L(S) = \mathrm{tr}(\Omega\Lambda) - \sum_{d\in S}\gamma_d$: the level where the components `learned` are S.

    Components count from 0 in falling order of gain. There are 2^D subsets.
    """
    gains = component_gains(task)
    return label_power(task) - float(np.sum(gains[component_indices(learned, gains.size)]))


def levels(task: RegressionTask) -> Float[np.ndarray, " level"]:
    r"""$L_0, \dots, L_D$: the levels of the long plateaus, with 0 to D components learned.

    $L_r$ is the least loss of any map of rank r. Components come in falling order of gain, because any other subset of
    the same size is a *strict* saddle: heads in use turn towards a component of larger gain in a time of order
    $\ln(1/w_{init})$, whereas a fresh head needs one of order $1/w_{init}$. In the paper's case this is the order of
    falling $\lambda_d$. Where the driving $\Lambda\Omega\Lambda$ is strongest for a component that has not the largest
    gain, that one may show first as a short-lived step, at `level(task, subset)`.
    """
    return label_power(task) - np.concatenate([[0.0], np.cumsum(component_gains(task))])


def fixed_point(task: RegressionTask, learned: Collection[int]) -> Float[np.ndarray, "dim dim"]:
    r"""The effective map $\sum_{d\in S} A_d$ where the components `learned` are S, counted from 0 as in `level`.

    In the paper's case it is $\sum_{d\in S} (\lambda_d/c_d)\, e_d e_d^\top$.
    """
    basis = components(task)
    return basis.maps[component_indices(learned, basis.gains.size)].sum(axis=0)


def escape_rates(task: RegressionTask) -> Float[np.ndarray, " component"]:
    r"""$\rho_m = \|G_m\|_2$, $G_m = M\Lambda - C A_m \Lambda$, on the plateaus with m = 0 to D-1 components learned.

    A small aligned head on plateau m grows as $\tau\dot v = \rho_m v^2$, and leaves after about $\tau/(\rho_m v_0)$.
    In the paper's case $\rho_m = \lambda_{m+1}^2$.
    """
    maps = np.cumsum(components(task).maps, axis=0)
    driving = cross_moment(task) - second_moment(task) @ np.concatenate([np.zeros_like(maps[:1]), maps[:-1]])
    return np.linalg.norm(driving @ task.covariance, ord=2, axis=(1, 2))


def component_indices(learned: Collection[int], size: int) -> list[int]:
    """The components asked for, in order and once each, if all are among 0 to size - 1."""
    chosen = sorted(set(learned))
    if any(not 0 <= d < size for d in chosen):
        raise InvalidInput(f"components {chosen} are asked for; they count from 0 to {size - 1}")
    return chosen
