"""Separate key and query: which head learns which component, and when, from the initial weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._arguments import checked

from .._integrate import integrate
from .._task import LinearTask
from ._components import Components, components
from ._levels import escape_rates, levels
from ._moments import cross_moment, input_moment, label_power, second_moment

_PATIENCE = 1e4
"""A plateau is given up after this many hyperbolic times 1/(ρ w): only a start on the stable manifold waits so long."""


@dataclass(frozen=True)
class Drop:
    """`head` (from 0) learns `component` (from 0, in falling order of gain) at `time`, in units of τ.

    `time` is when the loss is halfway between `level_before` and `level_after`.
    """

    time: float
    head: int
    component: int
    level_before: float
    level_after: float


@dataclass(frozen=True)
class _Plateau:
    r"""What each head gains: $2\langle A, R\rangle - \langle A, KAQ\rangle$ with its map $A = v\sum_r k_r q_r^\top$.

    `driving` is R, `keys` K and `queries` Q of `drop_schedule`, for each head. A row of `heads` has v, all k, all q.
    """

    driving: Float[np.ndarray, "head dim dim"]
    keys: Float[np.ndarray, "head dim dim"]
    queries: Float[np.ndarray, "head dim dim"]

    def split(self, heads: Float[np.ndarray, "head weights"]):
        count, dim, _ = self.keys.shape
        pairs = heads[:, 1:].reshape(count, 2, -1, dim)
        return heads[:, 0, None, None], pairs[:, 0], pairs[:, 1]

    def gains(self, heads: Float[np.ndarray, "head weights"]) -> Float[np.ndarray, " head"]:
        v, k, q = self.split(heads)
        a = v * (np.swapaxes(k, 1, 2) @ q)
        return np.sum(a * (2 * self.driving - self.keys @ a @ self.queries), axis=(1, 2))

    def velocity(self, heads: Float[np.ndarray, "head weights"]) -> Float[np.ndarray, "head weights"]:
        v, k, q = self.split(heads)
        product = np.swapaxes(k, 1, 2) @ q
        g = self.driving - v * (self.keys @ product @ self.queries)
        moved = np.empty_like(heads)
        moved[:, 0] = np.sum(product * g, axis=(1, 2))
        _, dk, dq = self.split(moved)
        np.matmul(v * q, np.swapaxes(g, 1, 2), out=dk)
        np.matmul(v * k, g, out=dq)
        return moved


@checked
def drop_schedule(
    task: LinearTask,
    values: Float[np.ndarray, " head"],
    keys: Float[np.ndarray, "head *pair dim"],
    queries: Float[np.ndarray, "head *pair dim"],
    *,
    until: float = np.inf,
) -> list[Drop]:
    r"""Which head learns which component, and when, from the initial weights; exact as these become small.

    On the plateau where the m components of largest gain are learned, what has been learned follows any small change at
    once, and heads do not interact. So each head moves alone, by
    $\tau\dot v = \sum_r k_r^\top G q_r$, $\tau\dot k_r = vGq_r$, $\tau\dot q_r = vG^\top k_r$, $G = R - KAQ$,
    $A = v\sum_r k_r q_r^\top$, $R = M\Lambda - CA_S\Lambda$,
    $K = C - \sum_{d\in S} C a_d a_d^\top C$, $Q = \Lambda - \sum_{d\in S} \Lambda b_d b_d^\top \Lambda$,
    with S the components that *other* heads have learned, $a_d$, $A_S$ as in `components` and
    $b_d = M^\top a_d/\sqrt{\gamma_d}$. In the paper's case $G = P(\Lambda^2 - CA\Lambda)P$ with P the projector off the
    $e_d$ of S.
    The first head to bring the loss halfway to the next level learns the next component; the rest go on from where they
    are. A head leaves the race with as many components as it has pairs. Until then it stays, with its grown value: its
    next pair escapes exponentially (`new_pair_time`), long before a fresh head (`new_head_time`).

    What one head learns is integrated; for the others it is there at once. The error of later times is then of the
    order of a drop's own duration, whatever the size w of the initial weights, or of $\ln(1/w)$ where heads in use
    pass a strict saddle (see `levels`). Times are of order 1/w.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `values`: the initial $v_i$, of shape (head,), for attention divided by N.
    - `keys`, `queries`: the initial $k_i$ and $q_i$, of shape (head, pair, dim), or (head, dim) for rank one.
    - `until`: the time at which to stop, in units of τ; by default never.

    **Returns:** the drops in order of time, each a `Drop` with its `time`, `head`, `component` and the levels before
    and after. There are as many as components with a gain, or fewer if heads or time run out, or no head escapes.

    **Example:** the larger head learns the first component, the smaller one the second.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> values, keys = np.array([0.01, 0.02]), np.array([[0.006, 0.008], [0.016, 0.012]])
    >>> for drop in sw.theory.linear.drop_schedule(task, values, keys, keys):
    ...     print(f"t = {drop.time:.1f}: head {drop.head} learns component {drop.component}: {drop.level_after:.3f}")
    t = 152.2: head 1 learns component 0: 0.448
    t = 644.4: head 0 learns component 1: 0.088
    """
    basis, steps, rates = components(task), levels(task), escape_rates(task)
    heads = len(values)
    if heads == 0:
        return []
    state = np.concatenate([values[:, None], keys.reshape(heads, -1), queries.reshape(heads, -1)], axis=1)
    rank = keys.size // (heads * basis.gains.size)
    scale = float(np.abs(state).max())
    racing, owned, now, drops = list(range(heads)), [[] for _ in range(heads)], 0.0, []
    for m, gain in enumerate(basis.gains):
        if not racing or not state.any() or gain <= np.finfo(float).eps * steps[0]:
            break
        plateau = _plateau(task, basis, [[d for d in range(m) if d not in owned[head]] for head in racing])
        had = np.array([basis.gains[owned[head]].sum() for head in racing])
        # Fresh heads are the slowest; a head of zeros never moves.
        norms = np.linalg.norm(state, axis=1)
        fresh = [norm for norm, head in zip(norms, racing, strict=True) if norm > 0 and not owned[head]]
        patience = _PATIENCE / (rates[m] * max(fresh or norms))
        state, waited = _wait(plateau, state, had + float(gain) / 2, min(patience, until - now), scale)
        if waited is None:
            break
        now += waited
        row = int(np.argmax(plateau.gains(state) - had))
        winner = racing[row]
        owned[winner].append(m)
        drops.append(Drop(now, winner, m, float(steps[m]), float(steps[m + 1])))
        if len(owned[winner]) == rank:
            racing.pop(row)
            state = np.delete(state, row, axis=0)
    return drops


@checked
def predicted_staircase(
    task: LinearTask, drops: Sequence[Drop], times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    r"""The loss as a staircase: $\mathrm{tr}(\Omega\Lambda)$ at first, then the level after the latest drop.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `drops`: the drops in order of time, as `drop_schedule` returns them.
    - `times`: the times at which the loss is asked for, in units of τ and in any order.

    **Returns:** the mean squared error at each of `times`; at the time of a drop, the level after it.

    **Example:**

    >>> import numpy as np
    >>> from stepwell import tasks
    >>> from stepwell.theory.linear import Drop, predicted_staircase
    >>> task = tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> drops = [Drop(time=150.0, head=1, component=0, level_before=1.0, level_after=0.448)]
    >>> predicted_staircase(task, drops, np.array([0.0, 100.0, 200.0])).round(3).tolist()
    [1.0, 1.0, 0.448]
    """
    steps = np.array([label_power(task), *(drop.level_after for drop in drops)])
    return steps[np.searchsorted(np.array([drop.time for drop in drops]), times, side="right")]


def _plateau(task: LinearTask, basis: Components, known: Sequence[list[int]]) -> _Plateau:
    """The matrices that drive each head, once other heads have learned the components `known`, one list for each."""
    lam, cross, second = input_moment(task), cross_moment(task), second_moment(task)

    def remaining(indices: list[int]):
        a, gains = basis.keys[:, indices], basis.gains[indices]
        b = cross.T @ a / np.sqrt(gains)
        ca, lb = second @ a, lam @ b
        return (cross - ca @ a.T @ cross) @ lam, second - ca @ ca.T, lam - lb @ lb.T

    cases = {tuple(indices): remaining(indices) for indices in known}
    return _Plateau(*(np.stack(part) for part in zip(*(cases[tuple(indices)] for indices in known), strict=True)))


def _wait(
    plateau: _Plateau,
    heads: Float[np.ndarray, "head weights"],
    enough: Float[np.ndarray, " head"],
    until: float,
    scale: float,
) -> tuple[Float[np.ndarray, "head weights"], float | None]:
    """The heads when the first of them gains `enough`, and how long that took (None if it did not by `until`)."""

    def reached(_: float, state: np.ndarray) -> float:
        return float((plateau.gains(state.reshape(heads.shape)) - enough).max())

    def field(_: float, state: np.ndarray) -> np.ndarray:
        return plateau.velocity(state.reshape(heads.shape)).ravel()

    if reached(0.0, heads.ravel()) >= 0:
        return heads, 0.0
    if until <= 0:
        return heads, None
    solution = integrate(field, heads.ravel(), until, event=reached, band=heads.shape[1] - 1, scale=scale)
    if solution.status != 1:
        return heads, None
    return solution.y_events[0][0].reshape(heads.shape), float(solution.t_events[0][0])
