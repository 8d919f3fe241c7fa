"""Tasks that share a head: whether that lasts, and what it costs."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float

from stepwell import _check
from stepwell._errors import InvalidInput

from .._description import MultiRegression
from .._task import MultiTask
from ._single_head import single_head_optimum

_MOST_TASKS = 12
"""The best partition of I tasks takes of order 3^I steps."""


class Partition(NamedTuple):
    """Tasks, counting from 0, by the head they share, and the spectral loss of each task."""

    groups: tuple[tuple[int, ...], ...]
    loss: Float[np.ndarray, " task"]


def revives(
    relative_omega: Float[np.ndarray, " *size"], share: Float[np.ndarray, " *size"] | float
) -> Bool[np.ndarray, " *size"]:
    r"""Whether a small head takes a task over from a shared one: $x > e^{x\beta-1}$.

    x is its ω over the shared head's, β the task's `share` $d_i\omega_i^2/\sum_jd_j\omega_j^2$ of that head. With β = 1
    the head is not shared, and no x will do.
    """
    return relative_omega > np.exp(relative_omega * share - 1)


def revival_threshold(share: float) -> float:
    r"""The least x that `revives`: the root of $x = e^{x\beta-1}$, $-W(-\beta/e)/\beta$. For β = 1/2 it is 0.464."""
    share = _check.number("share", share, least=0.0, most=1.0, above=True)
    # At the branch point of W there is no rounding to spare.
    return 1.0 if share == 1 else float(-scipy.special.lambertw(-share / np.e).real / share)


def shared_loss(task: MultiTask, groups: Sequence[Collection[int]]) -> Float[np.ndarray, " task"]:
    """The spectral loss of each task where the tasks of each group share one head, at its best for them.

    Groups count tasks from 0 and have each task once. One group is `single_head_optimum`, groups of one `flow_limit`.
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


def best_partition(task: MultiTask, heads: int) -> Partition:
    """The division of the tasks among at most `heads` heads with the least spectral loss.

    With as many heads as tasks it is one each. With fewer, a numerical search over weights that are not negative finds
    nothing better; that is not proved.
    """
    heads, tasks = _check.whole("heads", heads), len(task.dims)
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
    return MultiRegression(dims, strengths, task.noise_variance, task.lengths)


def _members(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
