"""The warm-up: how small weights grow before the loss moves, and when that ends."""

from typing import NamedTuple, Unpack

import numpy as np
import scipy
from jaxtyping import Float

from stepwell import _check
from stepwell._errors import InvalidInput

from .._task import MultiTask
from ._numbers import Training, numbers, speeds


class WarmUp(NamedTuple):
    r"""`ratio` is ρ*, which μ/ω tends to, and `exponent` α: deviations from the ray die as $\omega^{-1/\alpha}$."""

    ratio: Float[np.ndarray, " task"]
    exponent: Float[np.ndarray, " task"]


class WarmUpPath(NamedTuple):
    """Time, ω and μ at given ratios μ/ω."""

    time: Float[np.ndarray, "ratio task"]
    omega: Float[np.ndarray, "ratio task"]
    mu: Float[np.ndarray, "ratio task"]


class Bracket(NamedTuple):
    """Emergence times of each task where its winning head has no rival (`early`) and where all heads are as strong."""

    early: Float[np.ndarray, " task"]
    late: Float[np.ndarray, " task"]


def warm_up(task: MultiTask, *, heads: float = 1, **training: Unpack[Training]) -> WarmUp:
    r"""The ray $\mu = \rho^*\omega$ of the flow of small weights with `heads` equally strong heads, H.

    While $d\omega^2$ and μω are small, $\dot\omega = a\omega\mu$ and $\dot\mu = b\mu(\omega - H\phi\mu/L)$ with
    $a = 2c_\ell s\lambda$, $b = 2c_\ell\lambda d$. So $\rho^* = L/(H\phi + Ls/d)$, and $\alpha = a\rho^*/b$.
    """
    heads = _check.number("heads", heads, least=0.0, above=True)
    constants, rates = numbers(task), speeds(task, **training)
    over = rates.scores / (rates.values * constants.dims)
    ratio = constants.context / (heads * constants.phi + constants.context * over)
    return WarmUp(ratio, over * ratio)


def emergence_time(
    task: MultiTask,
    omega: Float[np.ndarray, " task"],
    mu: Float[np.ndarray, " task"] | None = None,
    *,
    heads: float = 1,
    **training: Unpack[Training],
) -> Float[np.ndarray, " task"]:
    r"""The time at which small weights of each task have grown, from `omega` and `mu` of its winning head.

    On the ray ω(t) is $\omega_0/(1-t/t_b)$, $t_b = 1/(2c_\ell s\lambda\rho^*\omega_0)$; that is where it starts if `mu`
    is not given. From elsewhere it is $t_b\,{}_2F_1(1,\alpha;1+\alpha;1-\rho_0/\rho^*)$, $\rho_0 = \mu_0/\omega_0$: the
    solution of the equations of `warm_up`, exact as the start becomes small. It is then when the loss drops, to
    within the width of the drop (`loss_drop_width`). `heads`: how many are equally strong, see `emergence_bracket`.
    """
    constants, rates = numbers(task), speeds(task, **training)
    ray = warm_up(task, heads=heads, **training)
    if np.any(omega <= 0) or (mu is not None and np.any(mu <= 0)):
        raise InvalidInput(
            "a start has an entry that is not above 0; give positive weights, since the flow never leaves zero"
        )
    on_ray = 1 / (rates.scores * constants.strengths * ray.ratio * omega)
    return on_ray if mu is None else on_ray * _delay(ray, mu / omega)


def emergence_bracket(
    task: MultiTask,
    omega: Float[np.ndarray, " task"],
    mu: Float[np.ndarray, " task"] | None = None,
    *,
    heads: int,
    **training: Unpack[Training],
) -> Bracket:
    """`emergence_time` with one effective head and with all; the true time is between, nearer the first the stronger
    the winning head is.
    """
    late = emergence_time(task, omega, mu, heads=_check.whole("heads", heads), **training)
    return Bracket(emergence_time(task, omega, mu, heads=1, **training), late)


def warm_up_path(
    task: MultiTask,
    omega: Float[np.ndarray, " task"],
    mu: Float[np.ndarray, " task"],
    ratios: Float[np.ndarray, "ratio task"],
    *,
    heads: float = 1,
    **training: Unpack[Training],
) -> WarmUpPath:
    r"""The warm-up from off the ray, with the ratio ρ = μ/ω as parameter: each must lie between $\rho_0$ and ρ*.

    $\omega = \omega_0\big[\tfrac{1-\rho_0/\rho^*}{1-\rho/\rho^*}\big]^\alpha$, and the time left is `emergence_time`.
    """
    ray = warm_up(task, heads=heads, **training)
    start, now = 1 - mu / omega / ray.ratio, 1 - ratios / ray.ratio
    if np.any(start == 0) or np.any(now / start <= 0) or np.any(now / start > 1 + 1e-9):
        raise InvalidInput(
            "ratios must lie between mu/omega at the start and warm_up(task).ratio, which is never reached"
        )
    grown = omega * (start / now) ** ray.exponent
    whole = emergence_time(task, omega, mu, heads=heads, **training)
    left = emergence_time(task, omega, heads=heads, **training) * omega / grown * _delay(ray, ratios)
    return WarmUpPath(whole - left, grown, ratios * grown)


def _delay(ray: WarmUp, ratio: np.ndarray) -> np.ndarray:
    return scipy.special.hyp2f1(1.0, ray.exponent, 1 + ray.exponent, 1 - ratio / ray.ratio)
