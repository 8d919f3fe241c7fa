"""Which head wins a task, and tasks that share a head."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple, Unpack

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import IntegrationFailed
from .._task_protocols import MultiRegression, MultiTask
from .._types import HeadTask, PerTask
from ._emergence import emergence_bracket, loss_drop_width, omega_climb_width, warm_up
from ._flow import spectral_flow
from ._limits import single_head_optimum
from ._task_numbers import FlowOptions, require_weights

_LATE = 36.0
"""Logarithm of how much nearer to the ray the differences are judged: what is left is of order rounding."""


class HeadAdvantage(NamedTuple):
    r"""The head with the largest `omega`·log ω + `mu`·log μ wins."""

    omega: PerTask
    mu: PerTask


@checked
def head_advantage(
    task: MultiTask, ratio: PerTask | None = None, *, heads: float, **training: Unpack[FlowOptions]
) -> HeadAdvantage:
    r"""Return the weights with which small leads in log ω and in log μ decide which head wins a task.

    Between two heads, δ = Δ log ω and η = Δ log μ obey δ' = aμη, η' = bωδ (`warm_up`); what heads share cancels. With
    $x = \rho/\rho^*$ and τ = -log|1-x| that is dδ/dτ = αη, dη/dτ = δ/x, and for large τ the combination δ + √α η grows.
    That combination is carried back to the initial weights. On the ray it is (1, √α) there.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `ratio`: the initial μ/ω for each task, about equal in all heads, above 0. By default that of the ray.
    - `heads`: the number of equally strong heads, H.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the `HeadAdvantage` for each task. Only the ratio of its two weights matters.

    **Example:** from a tenth of the ray's μ/ω, a lead in μ counts for less than on the ray.

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
    task: MultiTask, omega: HeadTask, mu: HeadTask, **training: Unpack[FlowOptions]
) -> Int[np.ndarray, " task"]:
    r"""Return the head that wins each task from small positive weights.

    By `head_advantage` along the course of the heads' geometric mean: exact for small differences. With equal μ it is
    the head with the largest ω, with equal ω that with the largest μ. Tasks with one winner share it (`shared_loss`).

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the initial weights (head, task), above 0 and small.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the index of the winning head for each task, from 0.

    **Example:**

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


_AFTER = 100.0
"""The flow is followed to so many times the latest emergence and what comes after: its loss is then at rest to 1e-5."""
_NUDGE = 1e-9
"""Relative change of weights that must not decide which head a task gets."""
_AT_REST = 1e-2
"""Relative difference to its limit up to which the loss is at rest."""
_MOST_TASKS = 12
"""The best partition of I tasks takes of order 3^I steps."""


class Partition(NamedTuple):
    """Tasks, counting from 0, by the head they share, and the spectral loss of each task."""

    groups: tuple[tuple[int, ...], ...]
    loss: PerTask


class FlowEnd(NamedTuple):
    """The head that serves each task, counting from 0, its weights in the end, and the spectral loss of each task."""

    head: Int[np.ndarray, " task"]
    omega: HeadTask
    mu: HeadTask
    loss: PerTask


@checked
def flow_end(task: MultiTask, omega: HeadTask, mu: HeadTask, **training: Unpack[FlowOptions]) -> FlowEnd:
    r"""Return where the flow from given positive balanced weights ends.

    Each task ends in one head. Where the heads of all tasks are distinct that is `flow_limit`; tasks of one head share
    it, with the weights of `single_head_optimum` for them alone, and the loss is higher. Which head a task gets follows
    from the flow itself (`spectral_flow`), long after the last emergence. Weights that are not balanced leave this end
    for a lower loss, however small the imbalance.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the initial weights (head, task), above 0.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the `FlowEnd`. `IntegrationFailed` is raised where the flow cannot be followed to its end, as from
    large weights, and where a relative change of the weights by 1e-9 gives a task to another head.

    **Example:** both tasks are won by the first head, which they share; then each has a head of its own.

    >>> task, mu = sw.tasks.MultiTaskRegression((10, 10), context=100), np.full((2, 2), 0.3)
    >>> for omega in (np.array([[0.008, 0.008], [0.004, 0.004]]), np.array([[0.008, 0.004], [0.004, 0.008]])):
    ...     end = sw.theory.softmax.flow_end(task, omega, mu)
    ...     print(end.head.tolist(), end.loss.round(2).tolist())
    [0, 0] [3.52, 3.52]
    [0, 1] [2.14, 2.14]
    """
    require_weights(task, omega, mu)
    if not (np.all(omega > 0) and np.all(mu > 0)):
        raise InvalidInput("weights have an entry that is not above 0; give positive weights, whose flow keeps signs")
    strongest = omega.max(axis=0), mu.max(axis=0)
    late = emergence_bracket(task, *strongest, heads=omega.shape[0], **training).late.max()
    late += loss_drop_width(task, **training).max() + omega_climb_width(task, **training).max()
    change, rest = _NUDGE * np.random.default_rng(0).normal(size=omega.shape), np.array([_AFTER * float(late)])
    with np.errstate(over="ignore", invalid="ignore"):
        courses = [spectral_flow(task, omega * (1 + sign * change), mu, rest, **training) for sign in (1, -1)]
    course = courses[0]
    head, other = (np.argmax(each.omega[0] * each.mu[0], axis=0) for each in courses)
    if np.any(head != other):
        raise IntegrationFailed(
            f"weights that are changed by a relative {_NUDGE:g} give the tasks to other heads: heads or tasks are so "
            "nearly equal that rounding would decide"
        )
    ends, loss = np.zeros((2, *omega.shape)), np.empty(len(task.dims))
    for each in np.unique(head):
        chosen = np.flatnonzero(head == each)
        best = single_head_optimum(_part(task, chosen.tolist()))
        ends[0, each, chosen], ends[1, each, chosen], loss[chosen] = best
    if not np.all(np.abs(course.loss[0] - loss) <= _AT_REST * loss):
        raise IntegrationFailed(f"the flow is not at rest at time {_AFTER * float(late):.3g}, at which it should be")
    return FlowEnd(head, ends[0], ends[1], loss)


@checked
def revives(
    relative_omega: Float[np.ndarray, " *size"], share: Float[np.ndarray, " *size"] | float
) -> Bool[np.ndarray, " *size"]:
    r"""Return whether a small head takes over a task from a head that several tasks share: $x > e^{x\beta-1}$.

    **Arguments:**

    - `relative_omega`: x, the small head's ω on the task over that of the shared head.
    - `share`: β, the part $d_i\omega_i^2/\sum_jd_j\omega_j^2$ of the shared head that the task has. With β = 1 the head
      is not shared, and no x satisfies the condition.

    **Returns:** whether the small head grows, for each x.

    **Example:** two equal tasks in one head.

    >>> sw.theory.softmax.revives([0.2, 0.45, 0.5, 0.8], 0.5).tolist()
    [False, False, True, True]
    """
    return relative_omega > np.exp(relative_omega * share - 1)


@checked
def revival_threshold(share: float) -> float:
    r"""Return the least x for which a small head `revives`: the smaller root of $x = e^{x\beta-1}$.

    It is $-W(-\beta/e)/\beta$, with W of Lambert.

    **Arguments:**

    - `share`: β, the part of the shared head that the task has, above 0 and at most 1; see `revives`.

    **Returns:** the threshold of x, from 1/e for β → 0 to 1 for β = 1.

    **Example:** two equal tasks in one head.

    >>> print(f"{sw.theory.softmax.revival_threshold(0.5):.3f}")
    0.464
    """
    share = checks.number("share", share, least=0.0, most=1.0, above=True)
    # At the branch point of W there is no rounding to spare.
    return 1.0 if share == 1 else float(-scipy.special.lambertw(-share / np.e).real / share)


@checked
def shared_loss(task: MultiTask, groups: Sequence[Collection[int]]) -> PerTask:
    """Return the spectral loss of each task where tasks of a group share one head, with the best weights for them.

    One group of all tasks is `single_head_optimum`, groups of one task are `flow_limit`.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `groups`: for each head, the indices of the tasks that it serves. Tasks count from 0, and each is in one group.

    **Returns:** the loss of each task, in the order of the tasks.

    **Example:** three equal tasks in three heads, in two and in one.

    >>> task = sw.tasks.MultiTaskRegression((10, 10, 10), context=100)
    >>> for groups in ([[0], [1], [2]], [[0, 1], [2]], [[0, 1, 2]]):
    ...     print(sw.theory.softmax.shared_loss(task, groups).round(2).tolist())
    [2.14, 2.14, 2.14]
    [3.52, 3.52, 2.14]
    [4.49, 4.49, 4.49]
    """
    tasks = range(len(task.dims))
    if sorted(i for group in groups for i in group) != list(tasks):
        raise InvalidInput(
            f"groups are {[list(group) for group in groups]}; they must have each of 0 to {tasks[-1]} once"
        )
    loss = np.empty(len(tasks))
    for group in groups:
        chosen = sorted(group)
        loss[chosen] = single_head_optimum(_part(task, chosen)).loss
    return loss


@checked
def best_partition(task: MultiTask, heads: int) -> Partition:
    """Return the division of the tasks among a number of heads with the least spectral loss.

    With as many heads as tasks it is one each. With fewer, a numerical search over weights that are not negative finds
    nothing better; that is not proved. All partitions are compared, so that there may be at most 12 tasks then.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `heads`: the largest number of heads, at least 1.

    **Returns:** `Partition` with `groups`, the tasks of each head, counting from 0, and the `loss` of each task.

    **Example:** of three tasks, the two with the fewest coordinates share a head.

    >>> task = sw.tasks.MultiTaskRegression((5, 10, 20), context=100)
    >>> best = sw.theory.softmax.best_partition(task, 2)
    >>> best.groups, best.loss.round(2).tolist()
    (((0, 1), (2,)), [1.45, 2.9, 7.04])
    """
    heads, tasks = checks.whole("heads", heads), len(task.dims)
    if heads >= tasks:
        groups = tuple((i,) for i in range(tasks))
        return Partition(groups, shared_loss(task, groups))
    if tasks > _MOST_TASKS:
        raise InvalidInput(
            f"there are {tasks} tasks; partitions are searched for at most {_MOST_TASKS}: compare some by shared_loss"
        )
    cost = [0.0] + [float(single_head_optimum(_part(task, _members(mask))).loss.sum()) for mask in range(1, 2**tasks)]

    @cache
    def best(mask: int, left: int) -> tuple[float, tuple[int, ...]]:
        """The least cost of the tasks in `mask` with `left` heads, and the masks of its groups."""
        if left == 1 or mask == 0:
            return cost[mask], (mask,) if mask else ()
        first = mask & -mask
        rest, candidates = mask ^ first, []
        part = rest
        while True:
            more, groups = best(rest ^ part, left - 1)
            candidates.append((cost[first | part] + more, (first | part, *groups)))
            if part == 0:
                return min(candidates)
            part = (part - 1) & rest

    groups = tuple(tuple(_members(mask)) for mask in best(2**tasks - 1, heads)[1])
    return Partition(groups, shared_loss(task, groups))


def _part(task: MultiTask, chosen: Sequence[int]) -> MultiRegression:
    """The description of the `chosen` tasks alone."""
    dims, strengths = tuple(task.dims[i] for i in chosen), tuple(task.strengths[i] for i in chosen)
    return MultiRegression(dims, strengths, task.noise_variance, task.context)


def _members(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
