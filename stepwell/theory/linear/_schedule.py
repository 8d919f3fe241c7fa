"""Separate key and query, rank one: which head learns which component, and when, from the initial weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .._integrate import integrate
from .._task import RegressionTask
from ._components import Components, components
from ._levels import escape_rates, levels
from ._moments import cross_moment, label_power, second_moment

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
    r"""What a fresh head sees. It brings the loss $2v\,k^\top R q - v^2 (k^\top K k)(q^\top Q q)$ below the plateau.

    `driving` is R, `keys` K and `queries` Q of `drop_schedule`. `heads` has v, k and q in each row.
    """

    driving: Float[np.ndarray, "dim dim"]
    keys: Float[np.ndarray, "dim dim"]
    queries: Float[np.ndarray, "dim dim"]

    def terms(self, heads: Float[np.ndarray, "head weights"]):
        dim = self.keys.shape[0]
        v, k, q = heads[:, 0], heads[:, 1 : dim + 1], heads[:, dim + 1 :]
        return v, k, q, q @ self.driving.T, k @ self.driving, k @ self.keys, q @ self.queries

    def gains(self, heads: Float[np.ndarray, "head weights"]) -> Float[np.ndarray, " head"]:
        v, k, q, rq, _, kk, qq = self.terms(heads)
        return 2 * v * np.sum(k * rq, 1) - v**2 * np.sum(k * kk, 1) * np.sum(q * qq, 1)

    def velocity(self, heads: Float[np.ndarray, "head weights"]) -> Float[np.ndarray, "head weights"]:
        v, k, q, rq, rk, kk, qq = self.terms(heads)
        key_power, query_power = np.sum(k * kk, 1), np.sum(q * qq, 1)
        dv = np.sum(k * rq, 1) - v * key_power * query_power
        dk = v[:, None] * (rq - (v * query_power)[:, None] * kk)
        dq = v[:, None] * (rk - (v * key_power)[:, None] * qq)
        return np.concatenate([dv[:, None], dk, dq], axis=1)


def drop_schedule(
    task: RegressionTask,
    values: Float[np.ndarray, " head"],
    keys: Float[np.ndarray, "head dim"],
    queries: Float[np.ndarray, "head dim"],
    *,
    until: float = np.inf,
) -> list[Drop]:
    r"""Drops of the loss from the initial weights $v_i$, $k_i$, $q_i$, up to time `until`; exact as these become small.

    On the plateau where the m components of largest gain are learned, heads in use follow any small change at once, and
    fresh heads do not interact. So each fresh head moves alone, by
    $\tau\dot v = k^\top G q$, $\tau\dot k = vGq$, $\tau\dot q = vG^\top k$, $G = R - v\,Kk\,(Qq)^\top$,
    $R = M\Lambda - CA_m\Lambda$,
    $K = C - \sum_{d\le m} C a_d a_d^\top C$, $Q = \Lambda - \sum_{d \le m} \Lambda b_d b_d^\top \Lambda$,
    with $a_d$, $A_m$ as in `components` and $b_d = M^\top a_d/\sqrt{\gamma_d}$. In the paper's case
    $G = P(\Lambda^2 - C\,v k q^\top\Lambda)P$ with P the projector off the learned $e_d$.
    The first head to bring the loss halfway to the next level learns the next component; the rest go on from where they
    are. Each head learns one component, so there are at most as many drops as heads.

    A drop is taken as instantaneous. The error of later times is then of the order of a drop's own duration, whatever
    the size w of the initial weights, or of $\ln(1/w)$ where heads in use pass a strict saddle (see `levels`). Times
    are of order 1/w.
    """
    found, steps, rates = components(task), levels(task), escape_rates(task)
    heads = np.concatenate([values[:, None], keys, queries], axis=1)
    fresh, now, drops = list(range(len(heads))), 0.0, []
    for m, gain in enumerate(found.gains):
        if not fresh or not heads.any() or gain <= np.finfo(float).eps * steps[0]:
            break
        plateau = _plateau(task, found, m)
        patience = _PATIENCE / (rates[m] * np.linalg.norm(heads, axis=1).max())
        heads, waited = _wait(plateau, heads, float(gain) / 2, min(patience, until - now))
        if waited is None:
            break
        now += waited
        winner = int(np.argmax(plateau.gains(heads)))
        drops.append(Drop(now, fresh.pop(winner), m, float(steps[m]), float(steps[m + 1])))
        heads = np.delete(heads, winner, axis=0)
    return drops


def predicted_staircase(
    task: RegressionTask, drops: Sequence[Drop], times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    r"""The loss at `times` as a staircase: $\mathrm{tr}(\Omega\Lambda)$, then the level after the latest drop."""
    steps = np.array([label_power(task), *(drop.level_after for drop in drops)])
    return steps[np.searchsorted(np.array([drop.time for drop in drops]), times, side="right")]


def _plateau(task: RegressionTask, found: Components, m: int) -> _Plateau:
    lam, cross, second = task.covariance, cross_moment(task), second_moment(task)
    a, gains = found.keys[:, :m], found.gains[:m]
    b = cross.T @ a / np.sqrt(gains)
    ca, lb = second @ a, lam @ b
    return _Plateau((cross - ca @ a.T @ cross) @ lam, second - ca @ ca.T, lam - lb @ lb.T)


def _wait(
    plateau: _Plateau, heads: Float[np.ndarray, "head weights"], enough: float, until: float
) -> tuple[Float[np.ndarray, "head weights"], float | None]:
    """The heads when the first of them gains `enough`, and how long that took (None if it did not by `until`)."""
    if plateau.gains(heads).max() >= enough:
        return heads, 0.0
    if until <= 0:
        return heads, None

    def reached(_: float, state: np.ndarray) -> float:
        return float(plateau.gains(state.reshape(heads.shape)).max()) - enough

    def field(_: float, state: np.ndarray) -> np.ndarray:
        return plateau.velocity(state.reshape(heads.shape)).ravel()

    solution = integrate(field, heads.ravel(), until, event=reached, band=heads.shape[1] - 1)
    if solution.status != 1:
        return heads, None
    return solution.y_events[0][0].reshape(heads.shape), float(solution.t_events[0][0])
