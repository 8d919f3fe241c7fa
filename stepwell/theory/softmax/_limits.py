"""Where training ends, the best that one head can do, and what no number of heads can go below."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import MultiTask
from .._types import HeadTask, LeadTask, PerTask
from ._losses import gram
from ._task_numbers import require_weights, task_numbers


class OneHeadEach(NamedTuple):
    r"""$\omega_i$ and $\mu_i$ of the head that serves task i and no other."""

    omega: PerTask
    mu: PerTask


@checked
def flow_limit(task: MultiTask) -> OneHeadEach:
    r"""Return the weights at which the flow ends if every task has a head of its own.

    $\omega_i = d_i^{-1/2}$, $\mu_i = \sqrt{d_i}/(1+\rho_i)$, $\rho_i = e\phi_id_i/L$. The variance of the softmax
    weights, which grows as $e^{d_i\omega_i^2}$, stops ω where the head attends to L/e tokens, whatever the noise; noise
    only shrinks μ. The flow gets there from positive weights if the tasks are won by distinct heads (see `winners`),
    which needs at least as many heads as tasks.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** `OneHeadEach` with `omega` and `mu` of the head that serves each task. Their diagonal matrices
    (`numpy.diag`) are what the functions of several heads take.

    **Example:**

    >>> limit = sw.theory.softmax.flow_limit(sw.tasks.MultiTaskRegression((10, 40), context=100))
    >>> limit.omega.round(3).tolist(), limit.mu.round(3).tolist()
    ([0.316, 0.158], [2.486, 3.03])
    """
    constants = task_numbers(task)
    return OneHeadEach(constants.dims**-0.5, constants.dims**0.5 / (1 + constants.rho))


@checked
def flow_limit_loss(task: MultiTask) -> PerTask:
    r"""Return the spectral loss of each task at `flow_limit`, $\lambda_id_i\,\rho_i/(1+\rho_i)$; their sum is the loss.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the loss of each task, to leading order in 1/L and $1/d_i$.

    **Example:** it falls as the context becomes longer. Before training it is 10.

    >>> for context in (10, 100, 1000):
    ...     task = sw.tasks.MultiTaskRegression((10,), context=context)
    ...     print(context, sw.theory.softmax.flow_limit_loss(task).round(3).tolist())
    10 [7.311]
    100 [2.137]
    1000 [0.265]
    """
    constants = task_numbers(task)
    return constants.signal * constants.rho / (1 + constants.rho)


class SingleHead(NamedTuple):
    """Best weights of the head that serves each task, and the loss of each task."""

    omega: PerTask
    mu: PerTask
    loss: PerTask


@checked
def single_head_optimum(task: MultiTask) -> SingleHead:
    r"""Return the least spectral loss of a single head on all tasks, in closed form.

    With the best μ the loss is $\sum_i S_i/(1+Ls_i/\phi_i)$, $s_i = \omega_i^2e^{-B}$, $B = \sum_jd_j\omega_j^2$. The
    budget $\sum_id_is_i = Be^{-B}$ is largest at B = 1, so it is 1/e, and is divided by `filled_shares`:
    $\xi_i = Ls_i = (\theta\sqrt{\lambda_i\phi_i}-\phi_i)_+$. Tasks with a large $\sqrt{\phi_i/\lambda_i}$ may get
    nothing. Then $\omega_i = \sqrt{e\xi_i/L}$, $\mu_i = \omega_i/(\omega_i^2+e\phi_i/L)$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the `SingleHead`, with the spectral loss.

    **Example:** a weak task is left out, and its loss stays at its signal, $\lambda_id_i = 0.1$.

    >>> task = sw.tasks.MultiTaskRegression((10, 10), (1.0, 0.01), context=100)
    >>> best = sw.theory.softmax.single_head_optimum(task)
    >>> best.omega.round(3).tolist(), best.loss.round(3).tolist()
    ([0.316, 0.0], [2.137, 0.1])
    """
    constants = task_numbers(task)
    shares = filled_shares(task, 1 / np.e)
    omega = np.sqrt(np.e * shares / constants.dims)
    mu = omega / (omega**2 + np.e * constants.phi / constants.context)
    return SingleHead(omega, mu, loss_of_shares(task, shares))


class ProfileLoss(NamedTuple):
    """The best `mu` for given scores, the shares $d_is_i$ they give the tasks, and the spectral loss of each task."""

    mu: HeadTask
    shares: PerTask
    loss: PerTask


@checked
def profile_loss(task: MultiTask, omega: HeadTask) -> ProfileLoss:
    r"""Return the spectral loss of given scores with the best μ for them.

    It is $\ell_i = S_i/(1+(L/\phi_i)s_i)$, $s_i = \omega_i^\top E^{-1}\omega_i$, where
    $G_{hh'} = \langle\omega^h,\omega^{h'}\rangle$, $E = e^G$ entry by entry, and $\omega_i$ has the scores of task i in
    all heads. The best $\mu_i$ is $E^{-1}\omega_i/(s_i+\phi_i/L)$. The shares $d_is_i$ add up to
    $T = \mathrm{tr}(E^{-1}G)$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: $\omega_i^h$ (head, task), as in `spectral_loss`.

    **Returns:** the `ProfileLoss`.

    **Example:** two heads of opposite scores have a larger share than one, which has at most 1/e.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> for omega in ([[0.3]], [[0.3], [-0.3]]):
    ...     profile = sw.theory.softmax.profile_loss(task, omega)
    ...     print(profile.shares.round(3).tolist(), profile.loss.round(3).tolist())
    [0.366] [2.146]
    [0.877] [1.024]
    """
    require_weights(task, omega)
    constants = task_numbers(task)
    # Heads that are alike make E singular: a pseudo-inverse shares their work.
    solved = np.linalg.lstsq(np.exp(gram(task, omega)), omega, rcond=None)[0]
    s = np.sum(omega * solved, axis=0)
    shares = constants.dims * s
    return ProfileLoss(solved / (s + constants.phi / constants.context), shares, loss_of_shares(task, shares))


@checked
def attention_budget(heads: int, tasks: int, *, provable: bool = False) -> float:
    r"""Return the largest value of $T = \sum_id_is_i$, the sum of the tasks' shares of attention (`profile_loss`).

    $E - G = 11^\top + \sum_{k\ge2}G^{\circ k}/k!$ is positive semi-definite (Schur), so the eigenvalues of $E^{-1}G$
    are in [0, 1] and at most min(H, I) are not zero: each share is at most 1 and T at most min(H, I).

    **Arguments:**

    - `heads`: the number of heads, H.
    - `tasks`: the number of tasks, I.
    - `provable`: whether to return that proved bound, min(H, I). By default 1/e for one head, and for more the supremum
      found by numerical search over signed weights, which is not proved: min(H-1, I), approached as ω → 0 with μ → ∞.

    **Returns:** the budget.

    **Example:**

    >>> [round(sw.theory.softmax.attention_budget(heads, 3), 3) for heads in (1, 2, 3, 4, 5)]
    [0.368, 1.0, 2.0, 3.0, 3.0]
    """
    heads, tasks = checks.whole("heads", heads), checks.whole("tasks", tasks)
    if provable:
        return float(min(heads, tasks))
    return 1 / np.e if heads == 1 else float(min(heads - 1, tasks))


@checked
def lower_bound(task: MultiTask, heads: int, *, provable: bool = False) -> PerTask:
    r"""Return a lower bound on the spectral loss of any weights of a number of heads.

    It is the least sum of losses that `attention_budget` allows, with shares $0\le d_is_i\le1$ (`profile_loss`). For
    one head it is that of `single_head_optimum`; with more heads than tasks $S_i\gamma_i/(1+\gamma_i)$,
    $\gamma_i = \phi_id_i/L$, which the flow's limit exceeds by a factor below e. That the paper's bound has this budget
    is inferred: its constant could not be consulted.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `heads`: the number of heads.
    - `provable`: whether to use the budget that is proved instead of the one found numerically; see `attention_budget`.

    **Returns:** the loss of each task, of which the sum is the bound.

    **Example:** one to four heads for three tasks, and where training ends with one head for each task.

    >>> task = sw.tasks.MultiTaskRegression((10, 10, 10), context=100)
    >>> [round(float(sw.theory.softmax.lower_bound(task, heads).sum()), 2) for heads in (1, 2, 3, 4)]
    [13.48, 6.92, 3.91, 2.73]
    >>> round(float(sw.theory.softmax.flow_limit_loss(task).sum()), 2)
    6.41
    """
    return loss_of_shares(task, filled_shares(task, attention_budget(heads, len(task.dims), provable=provable)))


@checked
def equiangular_budget(heads: int, size: float, overlap: float) -> float:
    r"""Return the sum T of shares (`profile_loss`) of heads with equal norms and equal products.

    With $|\omega^h|^2 = a$ and $\langle\omega^h,\omega^{h'}\rangle = b$,
    $T = (H-1)\frac{a-b}{e^a-e^b} + \frac{a+(H-1)b}{e^a+(H-1)e^b}$, $-a/(H-1)\le b\le a$.

    **Arguments:**

    - `heads`: the number of heads, H.
    - `size`: a, at least 0.
    - `overlap`: b, the product of two heads. With one head there is none, and it is not used.

    **Returns:** T, which is at most `attention_budget` with as many tasks as heads.

    **Example:** three heads of opposed scores approach the budget of 2 as they become flat.

    >>> [round(sw.theory.softmax.equiangular_budget(3, a, -a / 2), 3) for a in (1.0, 0.1, 0.01)]
    [1.421, 1.949, 1.995]
    """
    heads = checks.whole("heads", heads)
    a = checks.number("size", size, least=0.0)
    if heads == 1:
        return float(a * np.exp(-a))
    b = checks.number("overlap", overlap)
    if b > a or b < -a / (heads - 1) * (1 + 1e-12):
        raise InvalidInput(
            f"overlap is {b:g}; for {heads} heads of size {a:g} it must be from {-a / (heads - 1):g} to {a:g}"
        )
    gap = a - b
    apart = 1.0 if gap == 0 else gap / np.expm1(gap)
    rest = (a + (heads - 1) * b) / (np.exp(a) + (heads - 1) * np.exp(b))
    return float((heads - 1) * np.exp(-b) * apart + rest)


@checked
def sign_pair_loss(task: MultiTask, sharpness: Float[np.ndarray, " *size"]) -> Float[np.ndarray, "*size task"]:
    r"""Return the spectral loss where each task has two heads with scores (ω, -ω) and values (μ, -μ), and the best μ.

    The constant part of the kernel cancels: the share is $d_is_i = a/\sinh a$, against at most 1/e for one head. As a →
    0 it is 1, and the loss $S_i\gamma_i/(1+\gamma_i)$, $\gamma_i = \phi_id_i/L$, is that of linear attention to leading
    order (`linear_attention_loss`). Balanced flow keeps signs, so it does not find this from positive weights.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `sharpness`: $a = d_i\omega_i^2$, equal for all tasks, at least 0; an array of any shape.

    **Returns:** the loss of each task in the last axis, after the axes of `sharpness`.

    **Example:** flat pairs reach the lower bound, sharp ones do not.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.sign_pair_loss(task, [0.0, 0.5, 1.0, 2.0])[:, 0].round(3).tolist()
    [0.909, 0.944, 1.052, 1.535]
    >>> sw.theory.softmax.lower_bound(task, 2).round(3).tolist()
    [0.909]
    """
    if not np.all(sharpness >= 0):
        raise InvalidInput("sharpness has an entry that is not at least 0; give a = d*omega^2, for instance 0.5")
    # a/sinh a = 2a e^{-a}/(1-e^{-2a}), which neither overflows nor divides by zero.
    twice = 2 * np.where(sharpness == 0, 1.0, sharpness)
    shares = np.where(sharpness == 0, 1.0, twice * np.exp(-twice / 2) / -np.expm1(-twice))
    return loss_of_shares(task, np.broadcast_to(shares[..., None], (*shares.shape, len(task.dims))))


@checked
def filled_shares(task: MultiTask, budget: float) -> PerTask:
    r"""Return the shares $d_is_i$, from 0 to 1 and B in all, of least loss $\sum_i S_i/(1+Ls_i/\phi_i)$.

    The derivative in the share is equal for all tasks that are neither empty nor full, so that
    $s_i = \theta\sqrt{\lambda_i\phi_i/L} - \phi_i/L$ clipped to $[0, 1/d_i]$. Between the values of θ where a task
    starts to fill or is full, the shares are linear in θ and so in their sum: two corners give them exactly.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `budget`: B, above 0. A budget above the number of tasks gives every task a share of 1.

    **Returns:** the share of each task.

    **Example:** the budget of a single head goes to the stronger tasks; the weakest gets none.

    >>> task = sw.tasks.MultiTaskRegression((10, 10, 10), (4.0, 1.0, 0.01), context=100)
    >>> sw.theory.softmax.filled_shares(task, 1 / np.e).round(3).tolist()
    [0.279, 0.089, 0.0]
    """
    constants, tasks = task_numbers(task), len(task.dims)
    budget = min(checks.number("budget", budget, least=0.0, above=True), tasks)
    slope = constants.dims * np.sqrt(constants.strengths * constants.phi / constants.context)
    offset = constants.dims * constants.phi / constants.context
    corners = np.concatenate([offset / slope, (1 + offset) / slope])
    order = np.argsort(corners, kind="stable")
    starts, fulls = np.argsort(order).reshape(2, tasks)
    # At each corner, in order. Which tasks are empty or full is known from the order, also where rounding hides it.
    corner = np.arange(2 * tasks)[:, None]
    filling = np.clip(corners[order, None] * slope - offset, 0.0, 1.0)
    shares = np.where(fulls <= corner, 1.0, np.where(starts >= corner, 0.0, filling))
    sums = shares.sum(axis=1)
    above = int(np.searchsorted(sums, budget))
    part = (budget - sums[above - 1]) / (sums[above] - sums[above - 1])
    return shares[above - 1] + part * (shares[above] - shares[above - 1])


@checked
def loss_of_shares(task: MultiTask, shares: LeadTask) -> LeadTask:
    r"""Return the spectral loss of each task with the best μ, from its share $d_is_i$: $S_i/(1 + Ls_i/\phi_i)$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `shares`: $d_is_i$ of each task in the last axis, from 0 to 1; see `profile_loss`.

    **Returns:** the loss of each task, in the shape of `shares`.

    **Example:** no attention, the best of one head, and all that any number of heads can give.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> sw.theory.softmax.loss_of_shares(task, np.array([[0.0], [1 / np.e], [1.0]])).round(3).tolist()
    [[10.0], [2.137], [0.909]]
    """
    constants = task_numbers(task)
    return constants.signal / (1 + constants.context * shares / (constants.dims * constants.phi))
