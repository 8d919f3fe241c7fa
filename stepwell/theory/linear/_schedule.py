"""Separate key and query: which head learns which component, and when, from the initial weights."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from stepwell._arguments import checked
from stepwell._errors import InvalidInput

from .._integrate import MOST_STEPS, IntegrationFailed, Path, integrate
from .._task import LinearTask, PredictedModel
from ._heads import Heads, State, banded, coordinates
from ._levels import escape_rates, levels
from ._moments import label_power
from ._principal import Principal, principal

Found = TypeVar("Found")

_PATIENCE = 1e4
"""A plateau is given up after this many hyperbolic times 1/(ρ w): only a start on the stable manifold waits so long."""

_MOST_DRIFT = 1e-6
"""By which relative error in what the flow conserves its times are still believed. Some 1e-8 are the rule."""


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


@checked
def drop_schedule(
    task: LinearTask,
    values: Float[np.ndarray, " head"] | PredictedModel,
    keys: Float[np.ndarray, "head *pair dim"] | None = None,
    queries: Float[np.ndarray, "head *pair dim"] | None = None,
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
    Among components of one gain, as of a white covariance, the head chooses: what it learns is a mixture of them, and
    the rest is left to others. So it is where gains differ relatively by less than about w; where they differ by some
    times as much, the head is turning all the while, and later times are rough.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `values`: the initial $v_i$, of shape (head,), for attention divided by N; or, in place of all three, a model at
      its initial weights, a linear `SeparateAttention`, with any normalisation. Times are then by the model's clock.
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
    if isinstance(values, PredictedModel):
        return _of_model(task, values, until)
    if keys is None or queries is None:
        raise InvalidInput("there are values without keys and queries; give all three, or a model in place of values")
    basis, steps, rates = principal(task), levels(task), escape_rates(task)
    heads = len(values)
    if heads == 0:
        return Drops()
    dim, along = basis.sizes.size, coordinates(basis)
    pairs = ((part.reshape(-1, dim) @ own).reshape(heads, -1) for part, own in zip((keys, queries), along, strict=True))
    state = np.concatenate([values[:, None], *pairs], axis=1)
    rank, scale = keys.size // (heads * dim), float(np.abs(state).max())
    with np.errstate(over="ignore", invalid="ignore"):
        excess = -float(Heads(basis, [[]] * heads, [[]] * heads).gains(state).min())
    if not excess <= basis.gains.sum():
        return Drops(reason=too_large(excess, basis.gains.sum()))
    # A head of zeros never moves.
    racing, owned = [head for head in range(heads) if state[head].any()], [[] for _ in range(heads)]
    drops, now, left = Drops[Drop](), 0.0, MOST_STEPS
    for m in range(basis.useful):
        racing = [head for head in racing if len(owned[head]) < rank]
        if not racing:
            break
        others = [[d for d in range(m) if d not in owned[head]] for head in racing]
        flow = Heads(basis, [owned[head] for head in racing], others)
        # Fresh heads are the slowest.
        sizes = {head: np.abs(state[head]).max() for head in racing}
        with np.errstate(over="ignore", divide="ignore"):
            patience = _PATIENCE / rates[m] / max([sizes[h] for h in racing if not owned[h]] or sizes.values())
        try:
            path = _wait(flow, state[racing], float(basis.gains[m]) / 2, min(patience, until - now), scale, left)
        except IntegrationFailed as error:
            drops.reason = str(error)
            break
        left -= path.steps
        if not path.crossed:
            if patience < until - now:
                drops.reason = f"from these weights no head escapes within t/tau = {patience:.3g}"
            break
        after = path.state.reshape(len(racing), -1)
        if flow.drift(state[racing], after) > _MOST_DRIFT:
            drops.reason = "rounding decides when: the slowest rate is too far below the fastest for float64"
            break
        now, state[racing] = now + path.time, after
        winner = racing[int(np.argmax(flow.gains(state[racing])))]
        owned[winner].append(m)
        basis, state = _towards_winner(basis, state, winner, m, scale / np.abs(state[winner]).max())
        drops.append(Drop(now, winner, m, float(steps[m]), float(steps[m + 1])))
    return drops


def _of_model(task: LinearTask, model: PredictedModel, until: float) -> Drops[Drop]:
    """The schedule of a model, by its own clock."""
    from stepwell.tasks import attention_scale  # imports JAX, which whoever has a model has imported

    if model.activation != "linear":
        raise InvalidInput(f"the model has {model.activation} attention; the schedule is for linear attention")
    given, counts = model.normalisation, task.lengths.counts
    if given != "1/N" and len(counts) > 1:
        raise InvalidInput(
            f"attention is divided by {given} at {len(counts)} context lengths; the theory is for normalisation='1/N'"
        )
    # Weights f W predict the same, and follow the same path in the time f² t.
    length = max(counts)
    factor = (attention_scale(given, length) / attention_scale("1/N", length)) ** (1 / model.factors)
    weights = model.theory_weights({name: factor * np.asarray(weight) for name, weight in model.weights().items()})
    if set(weights) != {"values", "keys", "queries"}:
        raise InvalidInput(
            f"{type(model).__name__} has no keys and queries of its own, and learns all components at once; its time "
            "is half_drop_time(task, *merged_start(task, …))"
        )
    drops = drop_schedule(task, **weights, until=until * factor**2)
    return Drops((replace(drop, time=drop.time / factor**2) for drop in drops), drops.reason)


def _towards_winner(
    basis: Principal, state: State, winner: int, component: int, tolerance: float
) -> tuple[Principal, State]:
    """The basis, and the heads in it, with the component along what the winner learned, where its size has others.

    Of components of one size any directions will do, until a head chooses. Where sizes differ little, the head turns to
    the larger one so slowly that the others do not notice: at a rate of the relative difference times its own size,
    where they grow at one of theirs. `tolerance` is the relative difference below which this is so.
    """
    group = slice(component, int(np.sum(basis.sizes[: basis.useful] >= (1 - tolerance) * basis.sizes[component])))
    if group.stop - component < 2:
        return basis, state
    pairs = state[:, 1:].reshape(len(state), 2, -1, basis.sizes.size) * _norms(basis)
    x, y = pairs[winner, ..., group]
    learned = state[winner, 0] * (x.T @ y)
    rotation = np.linalg.eigh(learned + learned.T)[1][:, ::-1]
    basis = basis.rotated_within(group, rotation)
    pairs[..., group] = pairs[..., group] @ rotation
    pairs /= _norms(basis)
    return basis, np.concatenate([state[:, :1], pairs.reshape(len(state), -1)], axis=1)


def _norms(basis: Principal) -> Float[np.ndarray, "2 1 component"]:
    """Those of the directions of keys and of queries."""
    return np.stack([np.linalg.norm(side, axis=0)[None] for side in (basis.keys, basis.queries)])


def too_large(excess: float, gains: float) -> str:
    """Why there is no prediction for initial weights that raise the loss by more than can be learned."""
    return (
        f"the initial weights are too large for a prediction, which is for small ones: they raise the loss by "
        f"{excess:.3g}, and all components together lower it by {gains:.3g}"
    )


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


def _wait(flow: Heads, heads: State, enough: float, until: float, scale: float, most: int) -> Path:
    """The heads until the first of them gains `enough`, or `until`."""

    def reached(state: np.ndarray) -> float:
        return float(flow.gains(state.reshape(heads.shape)).max()) - enough

    def field(state: np.ndarray) -> np.ndarray:
        return flow.velocity(state.reshape(heads.shape)).ravel()

    def jacobian(state: np.ndarray) -> np.ndarray:
        return banded(flow.jacobian(state.reshape(heads.shape)))

    band = heads.shape[1] - 1
    return integrate(field, heads.ravel(), until, jacobian=jacobian, event=reached, band=band, scale=scale, most=most)
