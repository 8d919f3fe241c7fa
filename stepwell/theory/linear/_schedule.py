"""Separate key and query: which head learns which component, and when, from the initial weights."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from .._integrate import MOST_STEPS, IntegrationFailed, Stretch, integrate, not_followed
from .._task import RegressionTask
from ._heads import FreshHeads, GrownHead, State, coordinates
from ._levels import escape_rates, levels
from ._moments import label_power
from ._principal import Principal, principal

Found = TypeVar("Found")

_STRETCH = 20
"""Steps after which a head is asked what has come to rest in it, which need not be followed any more."""

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


class Drops(list[Found]):
    """Drops in order of time, and in `reason` why there are no more; that is empty if there are all that can be."""

    def __init__(self, drops: Iterable[Found] = (), reason: str = ""):
        super().__init__(drops)
        self.reason = reason


def drop_schedule(
    task: RegressionTask,
    values: Float[np.ndarray, " head"],
    keys: Float[np.ndarray, "head *pair dim"],
    queries: Float[np.ndarray, "head *pair dim"],
    *,
    until: float = np.inf,
) -> Drops[Drop]:
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

    - `task`: the regression, an `InContextRegression` or another `RegressionTask` of one output.
    - `values`: the initial $v_i$, of shape (head,), for attention divided by N.
    - `keys`, `queries`: the initial $k_i$ and $q_i$, of shape (head, pair, dim), or (head, dim) for rank one.
    - `until`: the time at which to stop, in units of τ; by default never.

    **Returns:** the drops in order of time, each a `Drop` with its `time`, `head`, `component` and the levels before
    and after. There are as many as components with a gain, or fewer if heads or time run out. If there are fewer for
    another reason, the list has it as `reason`: no head escapes, the solver does not get further, or the initial
    weights are so large that a head alone raises the loss by more than can be learned.

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
    basis, steps, rates = principal(task), levels(task), escape_rates(task)
    heads = len(values)
    if heads == 0:
        return Drops()
    dim, along = basis.sizes.size, coordinates(basis)
    pairs = ((part.reshape(-1, dim) @ along).reshape(heads, -1) for part in (keys, queries))
    state = np.concatenate([values[:, None], *pairs], axis=1)
    race = _Race(basis, state, rank=keys.size // (heads * dim))
    now, drops = 0.0, Drops[Drop]()
    excess = -float(FreshHeads(basis, []).gains(state).min())
    if excess > basis.gains.sum():
        return Drops(reason=too_large(excess, basis.gains.sum()))
    for m in range(basis.useful):
        slowest = race.slowest()
        if slowest == 0.0:
            break
        patience = _PATIENCE / (rates[m] * slowest)
        try:
            head, waited = race.winner(m, min(patience, until - now))
        except IntegrationFailed as error:
            drops.reason = str(error)
            break
        if head is None:
            if patience < until - now:
                drops.reason = f"from these weights no head escapes within t/tau = {patience:.3g}"
            break
        now += waited
        drops.append(Drop(now, head, m, float(steps[m]), float(steps[m + 1])))
    return drops


def too_large(excess: float, gains: float) -> str:
    """Why there is no prediction for initial weights that raise the loss by more than can be learned."""
    return (
        f"the initial weights are too large for a prediction, which is for small ones: they raise the loss by "
        f"{excess:.3g}, and all components together lower it by {gains:.3g}"
    )


class _Race:
    """All heads from plateau to plateau: which of them learns the next component first."""

    def __init__(self, basis: Principal, state: State, rank: int):
        self._basis = basis
        self._rank = rank
        self._scale = float(np.abs(state).max())
        self._state = state
        self._owned: list[list[int]] = [[] for _ in state]
        self._resting = np.zeros((len(state), *2 * basis.sizes.shape), dtype=bool)

    def _racing(self) -> list[int]:
        """Heads that can learn another component; a head of zeros never moves."""
        return [h for h, own in enumerate(self._owned) if len(own) < self._rank and self._state[h].any()]

    def slowest(self) -> float:
        """The size of the heads that take longest: the largest of the fresh ones. 0 if there is no head left."""
        sizes = {head: float(np.linalg.norm(self._state[head])) for head in self._racing()}
        fresh = [size for head, size in sizes.items() if not self._owned[head]]
        return max(fresh or sizes.values(), default=0.0)

    def winner(self, m: int, until: float) -> tuple[int | None, float]:
        """The head that learns component m, and when; None if none does by `until`. Until then all heads move."""
        enough = float(self._basis.gains[m]) / 2
        racing = self._racing()
        grown, fresh = ([h for h in racing if bool(self._owned[h]) is has] for has in (True, False))
        first, time, moved = None, until, {}
        for head in grown:  # the faster ones: each limits how long the others are followed
            moved[head] = _Followed(*self._follow_grown(head, m, enough, time))
            first, time = (head, moved[head].time) if moved[head].time < time else (first, time)
        early, states, row = self._follow_fresh(fresh, m, enough, time)
        first, time = (fresh[row], early) if early < time else (first, time)
        if first is None:
            return None, until
        for head in grown:
            if moved[head].time != time:
                moved[head] = _Followed(*self._follow_grown(head, m, np.inf, time))
            self._state[head], self._resting[head] = moved[head].state[0], moved[head].resting
        self._state[fresh] = states
        self._owned[first].append(m)
        return first, time

    def _follow_fresh(self, heads: list[int], m: int, enough: float, until: float) -> tuple[float, State, int]:
        """(time, states, row of a head) when the first has gained enough; the time is `until` if none has."""
        start = self._state[heads]
        if not heads:
            return until, start, 0
        flow = FreshHeads(self._basis, range(m))

        def reached(state: np.ndarray) -> float:
            return float(flow.gains(state.reshape(start.shape)).max()) - enough

        def field(state: np.ndarray) -> np.ndarray:
            return flow.velocity(state.reshape(start.shape)).ravel()

        band = start.shape[1] - 1
        path = integrate(field, start.ravel(), until, event=reached, band=band, scale=self._scale)
        state = path.state.reshape(start.shape)
        return path.time, state, int(np.argmax(flow.gains(state)))

    def _follow_grown(self, head: int, m: int, enough: float, until: float) -> tuple[float, State, np.ndarray]:
        """(time, state, coefficients at rest) when the head has gained enough; the time is `until` if it has not."""
        known = [d for d in range(m) if d not in self._owned[head]]
        flow = GrownHead(self._basis, known, self._owned[head], self._resting[head])
        state, now = flow.settled(self._state[[head]]), 0.0

        def reached(state: np.ndarray) -> float:
            return flow.progress(state[None]) - enough

        def field(state: np.ndarray) -> np.ndarray:
            return flow.velocity(state[None])[0]

        step, steps = None, 0
        while now < until:
            path = integrate(
                field, state[0], until - now, event=reached, scale=self._scale, stretch=Stretch(_STRETCH, step)
            )
            now, state, step = now + path.time, path.state[None], path.step
            if path.crossed or step is None:
                return (now if path.crossed else until), state, flow.resting
            state, steps = flow.settled(state), steps + _STRETCH
            if steps >= MOST_STEPS:
                raise IntegrationFailed(not_followed(now, until, f"{steps} steps did not lead further", self._scale))
        return until, state, flow.resting


class _Followed(NamedTuple):
    """When, how, and with which coefficients at rest a head was left."""

    time: float
    state: State
    resting: np.ndarray


def predicted_staircase(
    task: RegressionTask, drops: Sequence[Drop], times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    r"""The loss as a staircase: $\mathrm{tr}(\Omega\Lambda)$ at first, then the level after the latest drop.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `RegressionTask` of one output.
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
