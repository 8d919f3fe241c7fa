"""Which head wins a task: small differences between heads, amplified during the warm-up."""

from typing import NamedTuple, Unpack

import numpy as np
import scipy
from jaxtyping import Float, Int

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task import MultiTask
from ._numbers import FlowOptions, require_weights
from ._warm_up import warm_up

_LATE = 36.0
"""Logarithm of how much nearer to the ray the differences are judged: what is left is of order rounding."""


class HeadAdvantage(NamedTuple):
    r"""The head with the largest `omega`·log ω + `mu`·log μ wins."""

    omega: Float[np.ndarray, " task"]
    mu: Float[np.ndarray, " task"]


@checked
def amplification_exponent(
    task: MultiTask, *, heads: float, **training: Unpack[FlowOptions]
) -> Float[np.ndarray, " task"]:
    r"""The exponent with which the warm-up amplifies the lead of a head.

    On the ray a lead in log ω grows as that power of ω. It is $1/\sqrt\alpha$, $\alpha = s\rho^*/d$; the ray and α are
    those of `warm_up`.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `heads`: the number of equally strong heads, H.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** the exponent for each task, above 1. The larger it is, the more the warm-up amplifies small differences
    between heads.

    **Example:**

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10, 10), context=100)
    >>> sw.theory.softmax.amplification_exponent(task, heads=2).round(3).tolist()
    [1.376, 1.376]
    """
    return warm_up(task, heads=heads, **training).exponent ** -0.5


@checked
def head_advantage(
    task: MultiTask,
    ratio: Float[np.ndarray, " task"] | None = None,
    *,
    heads: float,
    **training: Unpack[FlowOptions],
) -> HeadAdvantage:
    r"""The weights with which small leads in log ω and in log μ decide which head wins a task.

    Between two heads, δ = Δ log ω and η = Δ log μ obey δ' = aμη, η' = bωδ (`warm_up`); what heads share cancels. With
    $x = \rho/\rho^*$ and τ = -log|1-x| that is dδ/dτ = αη, dη/dτ = δ/x, and for large τ the combination δ + √α η grows.
    That combination is carried back to the start. On the ray it is (1, √α) there.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `ratio`: μ/ω of the heads at the start, about equal in all heads, for each task; above 0. By default that of the
      ray.
    - `heads`: the number of equally strong heads, H.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** `HeadAdvantage` with the weights `omega` and `mu` for each task: the head with the largest
    `omega`·log ω + `mu`·log μ wins. Only their ratio matters.

    **Example:** from a tenth of the ray's μ/ω, a lead in μ counts for less than on the ray.

    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> ray = sw.theory.softmax.warm_up(task, heads=2).ratio
    >>> for ratio in (ray, ray / 10):
    ...     worth = sw.theory.softmax.head_advantage(task, ratio, heads=2)
    ...     print((worth.mu / worth.omega).round(3).tolist())
    [0.783]
    [0.398]
    """
    ray = warm_up(task, heads=heads, **training)
    start = np.ones_like(ray.ratio) if ratio is None else ratio / ray.ratio
    if np.any(start <= 0):
        raise InvalidInput("ratio has an entry that is not above 0; give mu/omega of positive weights")
    worth = np.array([_carried_back(alpha, x) for alpha, x in zip(ray.exponent, start, strict=True)])
    return HeadAdvantage(worth[:, 0], worth[:, 1])


@checked
def winners(
    task: MultiTask,
    omega: Float[np.ndarray, "head task"],
    mu: Float[np.ndarray, "head task"],
    **training: Unpack[FlowOptions],
) -> Int[np.ndarray, " task"]:
    r"""The head that wins each task from small positive weights.

    By `head_advantage` along the course of the heads' geometric mean: exact for small differences. With equal μ it is
    the head with the largest ω, with equal ω the head with the largest μ. Two tasks with the same winner stay in one
    head (see `shared_loss`).

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: initial $\omega_i^h$, above 0 and small.
    - `mu`: initial $\mu_i^h$, above 0 and small.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores, by default 2
      and $d^{-1/2}$ with d the sum of the tasks' dimensions.

    **Returns:** the index of the winning head for each task, from 0.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression((10, 10), context=100)
    >>> omega = np.array([[0.004, 0.004], [0.008, 0.004], [0.004, 0.008]])
    >>> sw.theory.softmax.winners(task, omega, np.full((3, 2), 0.3)).tolist()
    [1, 2]
    """
    require_weights(task, omega, mu)
    if np.any(omega <= 0) or np.any(mu <= 0):
        raise InvalidInput("weights have an entry that is not above 0; the rule is for small positive weights")
    log_omega, log_mu = np.log(omega), np.log(mu)
    ratio = np.exp(np.mean(log_mu - log_omega, axis=0))
    worth = head_advantage(task, ratio, heads=omega.shape[0], **training)
    return np.argmax(worth.omega * log_omega + worth.mu * log_mu, axis=0)


def _carried_back(alpha: float, x: float) -> np.ndarray:
    """The functional of (δ, η) at x that is (1, √α) on the ray, without the growth."""
    root, side = alpha**0.5, np.sign(1 - x)
    end = np.array([1.0, root])
    if side == 0:
        return end
    begun = -np.log(abs(1 - x))

    def backwards(sigma: float, worth: np.ndarray) -> np.ndarray:
        position = 1 - side * np.exp(sigma - begun - _LATE)
        return np.array([worth[1] / position, alpha * worth[0]]) - root * worth

    return scipy.integrate.solve_ivp(backwards, (0.0, _LATE), end, method="LSODA", rtol=1e-10, atol=1e-12).y[:, -1]
