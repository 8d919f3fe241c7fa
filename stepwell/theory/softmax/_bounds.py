"""What no number of heads can go below, to leading order."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell import _check
from stepwell._errors import InvalidInput

from .._task import MultiTask
from ._numbers import numbers, require_weights
from ._spectral import gram
from ._water_filling import filled_shares, loss_of_shares


class Profile(NamedTuple):
    """The best `mu` for given scores, the shares $d_is_i$ they give the tasks, and the spectral loss of each task."""

    mu: Float[np.ndarray, "head task"]
    shares: Float[np.ndarray, " task"]
    loss: Float[np.ndarray, " task"]


def profile_loss(task: MultiTask, omega: Float[np.ndarray, "head task"]) -> Profile:
    r"""The spectral loss with μ at its best: $\ell_i = S_i/(1+(L/\phi_i)s_i)$, $s_i = \omega_i^\top E^{-1}\omega_i$.

    $G_{hh'} = \langle\omega^h,\omega^{h'}\rangle$, $E = e^G$ entry by entry, and $\omega_i$ has the scores of task i in
    all heads. The best $\mu_i$ is $E^{-1}\omega_i/(s_i+\phi_i/L)$. The shares add up to $T = \mathrm{tr}(E^{-1}G)$.
    """
    require_weights(task, omega)
    constants = numbers(task)
    # Heads that are alike make E singular: a pseudo-inverse shares their work.
    solved = np.linalg.lstsq(np.exp(gram(task, omega)), omega, rcond=None)[0]
    s = np.sum(omega * solved, axis=0)
    return Profile(
        solved / (s + constants.phi / constants.context), constants.dims * s, loss_of_shares(task, constants.dims * s)
    )


def attention_budget(heads: int, tasks: int, *, provable: bool = False) -> float:
    r"""The most that $T = \sum_id_is_i$ can be (`profile_loss`).

    $E - G = 11^\top + \sum_{k\ge2}G^{\circ k}/k!$ is positive semi-definite (Schur), so the eigenvalues of $E^{-1}G$
    are in [0, 1] and at most min(H, I) are not zero: each share is at most 1 and T at most min(H, I). That is what
    `provable` gives. The default is the supremum found by numerical search, over signed weights and not proved here:
    1/e for one head, min(H-1, I) for more, where it is approached as ω → 0 and μ → ∞.
    """
    heads, tasks = _check.whole("heads", heads), _check.whole("tasks", tasks)
    if provable:
        return float(min(heads, tasks))
    return 1 / np.e if heads == 1 else float(min(heads - 1, tasks))


def lower_bound(task: MultiTask, heads: int, *, provable: bool = False) -> Float[np.ndarray, " task"]:
    r"""Losses of the tasks at the least sum that `attention_budget` allows, $0\le d_is_i\le1$.

    For one head it is that of `single_head_optimum`; with more heads than tasks $S_i\gamma_i/(1+\gamma_i)$,
    $\gamma_i = \phi_id_i/L$, which the flow's limit exceeds by a factor below e. That the paper's bound has this budget
    is inferred: its constant could not be consulted.
    """
    return loss_of_shares(task, filled_shares(task, attention_budget(heads, len(task.dims), provable=provable)))


def equiangular_budget(heads: int, size: float, overlap: float) -> float:
    r"""T of heads with $|\omega^h|^2 = a$ (`size`) and $\langle\omega^h,\omega^{h'}\rangle = b$ (`overlap`):

    $T = (H-1)\frac{a-b}{e^a-e^b} + \frac{a+(H-1)b}{e^a+(H-1)e^b}$, $-a/(H-1)\le b\le a$.
    """
    heads = _check.whole("heads", heads)
    a = _check.number("size", size, least=0.0)
    if heads == 1:
        return float(a * np.exp(-a))
    b = _check.number("overlap", overlap)
    if b > a or b < -a / (heads - 1) * (1 + 1e-12):
        raise InvalidInput(
            f"overlap is {b:g}; for {heads} heads of size {a:g} it must be from {-a / (heads - 1):g} to {a:g}"
        )
    gap = a - b
    apart = 1.0 if gap == 0 else gap / np.expm1(gap)
    rest = (a + (heads - 1) * b) / (np.exp(a) + (heads - 1) * np.exp(b))
    return float((heads - 1) * np.exp(-b) * apart + rest)


def sign_pair_loss(task: MultiTask, sharpness: Float[np.ndarray, " *size"]) -> Float[np.ndarray, "*size task"]:
    r"""The spectral loss where each task has two heads, (ω, -ω) with (μ, -μ), at $a = d_i\omega_i^2$ (`sharpness`).

    The constant part of the kernel cancels: the share is $d_is_i = a/\sinh a$, against 1/e for one head. As a → 0 it is
    1, and the loss $S_i\gamma_i/(1+\gamma_i)$, $\gamma_i = \phi_id_i/L$, is that of linear attention to leading order
    (`linear_attention_loss`). Balanced flow keeps signs, so it does not find this from positive weights.
    """
    if not np.all(sharpness >= 0):
        raise InvalidInput("sharpness has an entry that is not at least 0; give a = d*omega^2, for instance 0.5")
    # a/sinh a = 2a e^{-a}/(1-e^{-2a}), which neither overflows nor divides by zero.
    twice = 2 * np.where(sharpness == 0, 1.0, sharpness)
    shares = np.where(sharpness == 0, 1.0, twice * np.exp(-twice / 2) / -np.expm1(-twice))
    return loss_of_shares(task, np.broadcast_to(shares[..., None], (*shares.shape, len(task.dims))))
