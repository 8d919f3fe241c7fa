"""Separate key and query: which head learns which component, and when, from the initial weights."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

import numpy as np
from jaxtyping import Bool, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import LinearTask, PredictedEnsemble, PredictedModel
from .._types import PerTime
from ._context_moments import moments
from ._levels import escape_rates, levels
from ._principal import principal
from ._race import TRIALS, races
from ._trace import Trace

Found = TypeVar("Found")


@dataclass(frozen=True)
class Drop:
    """`head` (from 0) learns `component` (from 0, in falling order of gain) at `time`, in units of τ.

    `time` is when the loss is halfway between `level_before` and `level_after`. It is uncertain by `uncertainty`, in
    the same units: nan where that was not asked for. In a near tie (`tie`) the drop before
    was not over when another head was ready.
    """

    time: float
    head: int
    component: int
    level_before: float
    level_after: float
    uncertainty: float = np.nan
    tie: bool = False


class Drops(list[Found]):
    """Drops in order of time, and in `reason` why there are no more; that is empty if there are all that can be."""

    def __init__(self, drops: Iterable[Found] = (), reason: str = ""):
        super().__init__(drops)
        self.reason = reason


@dataclass(frozen=True, eq=False)
class Schedules(Sequence[Drops[Drop]]):
    """The drops of many runs: `schedules[i]` are the `Drops` of run i, and `for drops in schedules` those of each.

    - `times`: the time of each drop, in units of τ, of shape (run, drop); nan where it does not come. Drop d is that at
      which component d is learned, counted from 0 in falling order of gain.
    - `heads`: the head that learns it, from 0, of the same shape; -1 where none does.
    - `levels`: the losses before the first drop and after each.
    - `reasons`: for each run why there are no more drops; empty if there are all that can be.
    - `uncertainties`: those of `times`, in the same units; nan where they were not asked for.
    - `ties`: whether the drop is in a near tie with the one before: its head was recruited while that one still fell.
    """

    times: Float[np.ndarray, "run drop"]
    heads: Int[np.ndarray, "run drop"]
    levels: Float[np.ndarray, " level"]
    reasons: tuple[str, ...]
    uncertainties: Float[np.ndarray, "run drop"]
    ties: Bool[np.ndarray, "run drop"]

    def __len__(self) -> int:
        return len(self.reasons)

    @overload
    def __getitem__(self, run: int) -> Drops[Drop]: ...
    @overload
    def __getitem__(self, run: slice) -> "Schedules": ...
    def __getitem__(self, run):
        if isinstance(run, slice):
            times, heads, off, ties = (each[run] for each in (self.times, self.heads, self.uncertainties, self.ties))
            return Schedules(times, heads, self.levels, self.reasons[run], off, ties)
        made, steps = np.isfinite(self.times[run]), self.levels.tolist()
        rows = (each[run, made].tolist() for each in (self.times, self.heads, self.uncertainties, self.ties))
        numbered = enumerate(zip(*rows, strict=True))
        drops = (Drop(time, head, d, steps[d], steps[d + 1], off, tie) for d, (time, head, off, tie) in numbered)
        return Drops(drops, self.reasons[run])


@overload
def drop_schedule(
    task: LinearTask, values: PredictedEnsemble, *, until: float = np.inf, trials: int = TRIALS
) -> Schedules: ...
@overload
def drop_schedule(
    task: LinearTask, values: PredictedModel, *, until: float = np.inf, trials: int = TRIALS
) -> Drops[Drop]: ...
@overload
def drop_schedule(
    task: LinearTask,
    values: Float[np.ndarray, "*run head"],
    keys: Float[np.ndarray, "*lead dim"] | None = None,
    queries: Float[np.ndarray, "*lead dim"] | None = None,
    *,
    until: float = np.inf,
    trials: int = TRIALS,
) -> Any: ...  # Drops[Drop], or Schedules where there is an axis of runs
@checked
def drop_schedule(
    task: LinearTask,
    values: Float[np.ndarray, "*run head"] | PredictedModel | PredictedEnsemble,
    keys: Float[np.ndarray, "*lead dim"] | None = None,
    queries: Float[np.ndarray, "*lead dim"] | None = None,
    *,
    until: float = np.inf,
    trials: int = TRIALS,
) -> Drops[Drop] | Schedules:
    r"""Return the drops of the loss: which head learns which component, and when, from small initial weights.

    On the plateau where the components S are learned, what has been learned follows any small change at once, and heads
    do not interact. So each head moves alone, by
    $\tau\dot v = \sum_r k_r^\top G q_r$, $\tau\dot k_r = vGq_r$, $\tau\dot q_r = vG^\top k_r$, $G = R - KAQ$,
    $A = v\sum_r k_r q_r^\top$, $R = M\Lambda - CA_S\Lambda$,
    $K = C - \sum_{d\in S} C a_d a_d^\top C$, $Q = \Lambda - \sum_{d\in S} \Lambda b_d b_d^\top \Lambda$,
    with $a_d$, $A_S$ as in `components` and $b_d = M^\top a_d/\sqrt{\gamma_d}$. In the paper's case
    $G = P(\Lambda^2 - CA\Lambda)P$ with P the projector off the $e_d$ of S.
    From when the first head is large enough for others to feel it, to when it has settled, the *narrow network* is
    followed: the heads that count, all of them together by the equations of the flow,
    $G = M\Lambda - C\sum_i v_i\sum_r k_{ir}q_{ir}^\top\Lambda$; others are *test particles*, which feel G and add
    nothing. Drops are where its loss is halfway between levels. Heads whose components grow far faster follow at once.

    The relative error of times is some $10^{-5}$ from initial sizes of $10^{-2}$, and falls with them. Where heads
    are ready within the duration of a drop, they count together, and the drop is a tie.
    Among components of one gain, as of a white covariance, the head chooses: what it learns is a mixture of them, and
    the rest is left to others.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `values`: the initial $v_i$, of shape (head,), for attention divided by N; or, in place of all three, a model at
      its initial weights, a linear `SeparateAttention`, with any normalization. Times are then by the model's clock.
      For many runs at once, an `Ensemble` of models, or values of shape (run, head). A run then costs a fiftieth of a
      call of its own in 4 dimensions.
    - `keys`, `queries`: the initial $k_i$ and $q_i$, of shape (head, pair, dim), or (head, dim) for rank one; with a
      first axis of runs where `values` have one.
    - `until`: the time at which to stop, in units of τ; by default never.
    - `trials`: how many perturbed copies of each run, which are followed less closely, estimate the uncertainty of its
      times; none takes half of the time.

    **Returns:** the drops in order of time, each a `Drop` with its `time`, `head`, `component` and the levels before
    and after. There are as many as components with a gain, or fewer if heads or time run out. If there are fewer for
    another reason, the list has it as `reason`: no head escapes, the solver does not get further, or the initial
    weights are so large that a head alone raises the loss by more than can be learned. Of many runs it is `Schedules`,
    with arrays of shape (run, drop), and the drops of run i as item i.

    **Example:** the larger head learns the first component, the smaller one the second.

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> values, keys = np.array([0.01, 0.02]), np.array([[0.006, 0.008], [0.016, 0.012]])
    >>> for drop in sw.theory.linear.drop_schedule(task, values, keys, keys):
    ...     print(f"t = {drop.time:.1f}: head {drop.head} learns component {drop.component}: {drop.level_after:.3f}")
    t = 152.2: head 1 learns component 0: 0.448
    t = 646.7: head 0 learns component 1: 0.088

    A thousand initializations, of which in about half either head learns first.

    >>> rng = np.random.default_rng(0)
    >>> initial = [0.01 * rng.normal(size=shape) for shape in ((1000, 2), (1000, 2, 2), (1000, 2, 2))]
    >>> schedules = sw.theory.linear.drop_schedule(task, *initial)
    >>> schedules.times.shape, f"{np.median(schedules.times[:, 0]):.0f}", f"{np.mean(schedules.heads[:, 0]):.1f}"
    ((1000, 2), '349', '0.5')
    """
    trials = checks.whole("trials", trials, least=0, most=1000)
    if isinstance(values, PredictedEnsemble | PredictedModel):
        return _of_model(task, values, until, trials)
    if keys is None or queries is None:
        raise InvalidInput("there are values without keys and queries; give all three, or a model in place of values")
    lead, dim = values.shape, keys.shape[-1]
    if keys.shape[: len(lead)] != lead or keys.ndim not in (len(lead) + 1, len(lead) + 2) or len(lead) > 2:
        raise InvalidInput(
            f"values have shape {values.shape} and keys {keys.shape}; they must be (head,) and (head, pair, dim), or "
            "(run, head) and (run, head, pair, dim), with or without the axis of pairs"
        )
    basis, steps = principal(task), levels(task)
    pairs = keys.shape[len(lead)] if keys.ndim == len(lead) + 2 else 1
    many = values.reshape(-1, lead[-1]) if len(lead) == 2 else values[None]
    keys, queries = (side.reshape(*many.shape, pairs, dim) for side in (keys, queries))
    made = races(basis, escape_rates(task), many, keys, queries, until, trials)
    levels_of = steps[: basis.useful + 1]
    schedules = Schedules(made.times, made.heads, levels_of, tuple(made.reasons), made.uncertainties, made.ties)
    return schedules if len(lead) == 2 else schedules[0]


def _of_model(
    task: LinearTask, model: PredictedModel | PredictedEnsemble, until: float, trials: int
) -> Drops[Drop] | Schedules:
    """The schedule of a model, or of each model of an ensemble, by its own clock."""
    from stepwell.tasks import attention_scale  # imports JAX, which whoever has a model has imported

    one: PredictedModel = model.stacked if isinstance(model, PredictedEnsemble) else model
    if one.activation != "linear":
        raise InvalidInput(f"the model has {one.activation} attention; the schedule is for linear attention")
    given, counts = one.normalization, task.context.counts
    if given != "1/N" and len(counts) > 1:
        raise InvalidInput(
            f"attention is divided by {given} at {len(counts)} context lengths; the theory is for normalization='1/N'"
        )
    # Weights f W predict the same, and follow the same path in the time f² t.
    length = max(counts)
    factor = (attention_scale(given, length) / attention_scale("1/N", length)) ** (1 / one.factors)
    weights = one.theory_weights({name: factor * np.asarray(weight) for name, weight in one.weights().items()})
    if set(weights) != {"values", "keys", "queries"}:
        raise InvalidInput(
            f"{type(one).__name__} has no keys and queries of its own, and learns all components at once; its time "
            "is half_drop_time(task, *merged_initial(task, …))"
        )
    drops = drop_schedule(task, **weights, until=until * factor**2, trials=trials)
    if isinstance(drops, Schedules):
        return replace(drops, times=drops.times / factor**2, uncertainties=drops.uncertainties / factor**2)
    own = (replace(drop, time=drop.time / factor**2, uncertainty=drop.uncertainty / factor**2) for drop in drops)
    return Drops(own, drops.reason)


def predicted_path(
    task: LinearTask,
    values: Float[np.ndarray, " head"],
    keys: Float[np.ndarray, "head pair dim"],
    queries: Float[np.ndarray, "head pair dim"],
    times: PerTime,
) -> tuple[
    Float[np.ndarray, " some"],
    Float[np.ndarray, " some"],
    Float[np.ndarray, "some head"],
    Float[np.ndarray, "some dim dim"],
]:
    """The path that `drop_schedule` follows: `times` and some between, and the loss, values and maps at these.

    What is not known, since the implicit method leads over it, is nan; so is all where weights are too large.
    """
    basis = principal(task)
    lengths = np.linalg.norm(basis.keys, axis=0) * np.linalg.norm(basis.queries, axis=0)
    useful = np.arange(basis.sizes.size) < basis.useful
    trace = Trace(np.where(useful, basis.sizes / basis.curvatures / lengths, 0.0))
    given = values[None], keys[None], queries[None]
    made = races(basis, escape_rates(task), *given, float(times[-1]), 0, trace)
    if not trace.known:  # nothing moves, or the theory says nothing
        nothing = np.nan * values, np.nan, np.nan
        value, own, loss = nothing if made.reasons[0] else (values, 0.0, moments(task).label_power)
        maps = np.full((times.size, *(keys.shape[-1:] * 2)), own)
        return times, np.full(times.size, loss), np.tile(value, (times.size, 1)), maps
    times, excess, path, maps = trace.at(times)
    return times, float(levels(task)[basis.useful]) + excess, path, maps


@checked
def predicted_staircase(task: LinearTask, drops: Sequence[Drop], times: PerTime) -> PerTime:
    r"""Return the loss as a staircase: $\mathrm{tr}(\Omega\Lambda)$ at first, then the level after the latest drop.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `drops`: the drops in order of time, as `drop_schedule` returns them.
    - `times`: the times at which the loss is asked for, in units of τ and in any order.

    **Returns:** the mean squared error at each of `times`; at the time of a drop, the level after it.

    **Example:**

    >>> from stepwell import tasks
    >>> from stepwell.theory.linear import Drop, predicted_staircase
    >>> task = tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> drops = [Drop(time=150.0, head=1, component=0, level_before=1.0, level_after=0.448)]
    >>> predicted_staircase(task, drops, np.array([0.0, 100.0, 200.0])).round(3).tolist()
    [1.0, 1.0, 0.448]
    """
    steps = np.array([moments(task).label_power, *(drop.level_after for drop in drops)])
    return steps[np.searchsorted(np.array([drop.time for drop in drops]), times, side="right")]
