"""The compiled loop that `descend` and `online` share: record, step, record."""

import abc
import functools
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from stepwell._util.process import quick_jit
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective, Reduce, Sampled
from stepwell.tasks import AbstractTask

from ._devices import Divided, beside, placed
from ._ensemble import Ensemble, flatten, unflatten
from ._record import Observable
from .fast import AbstractMultiStep, gradient_form

Model = TypeVar("Model", bound=AbstractModel)

_LONG_RUN = 100_000
"""Steps from which a program that takes longer to compile and less to run is worth having."""


@runtime_checkable
class Transformation(Protocol):
    """The interface of an optax optimizer, so that optax, which takes a quarter of a second, need not be imported."""

    @property
    def init(self) -> Callable[..., Any]: ...

    @property
    def update(self) -> Callable[..., Any]: ...


class AbstractSource(eqx.Module):
    """Where the loss of a step comes from."""

    @abc.abstractmethod
    def at(self, step: Int[Array, ""]) -> AbstractObjective:
        """The objective whose gradient is followed at this step."""


class Fixed(AbstractSource):
    """The same objective at every step."""

    objective: AbstractObjective

    def at(self, step: Int[Array, ""]) -> AbstractObjective:
        return self.objective


class Fresh(AbstractSource):
    """New sequences at every step: step t always draws the same ones from one key."""

    task: AbstractTask
    batch_size: int = eqx.field(static=True)
    key: Array
    reduce: Reduce = eqx.field(static=True, default="mean")
    spread: bool = eqx.field(static=True, default=False)
    """Whether each device draws its part of the batch."""

    def at(self, step: Int[Array, ""]) -> AbstractObjective:
        drawn = Sampled(self.task.draw(self.batch_size, key=jax.random.fold_in(self.key, step)), self.reduce)
        return placed(Divided.of(drawn)) if self.spread else drawn


class AbstractRule(eqx.Module):
    """How a gradient moves the weights of one run."""

    @abc.abstractmethod
    def start(self, weights: Float[Array, " weights"]) -> Any:
        """The state before the first step."""

    @abc.abstractmethod
    def step(self, gradient: Float[Array, " weights"], state: Any, weights: Float[Array, " weights"]):
        """(new weights, new state)."""


class ConstantRate(AbstractRule):
    r"""$W \leftarrow W - \eta\, \partial L/\partial W$."""

    rate: Float[Array, ""]

    def start(self, weights: Float[Array, " weights"]) -> Any:
        return ()

    def step(self, gradient: Float[Array, " weights"], state: Any, weights: Float[Array, " weights"]):
        return weights - self.rate * gradient, state


class ScheduledRate(AbstractRule):
    r"""$W \leftarrow W - \eta(n)\, \partial L/\partial W$ at step number n."""

    schedule: Callable[[Any], Any] = eqx.field(static=True)
    first: Int[Array, ""]
    """The number of the first step."""

    def start(self, weights: Float[Array, " weights"]) -> Any:
        return self.first

    def step(self, gradient: Float[Array, " weights"], state: Any, weights: Float[Array, " weights"]):
        return (weights - self.schedule(state) * gradient).astype(weights.dtype), state + 1


class Optimizer(AbstractRule):
    """Any optax optimizer, on the vector of all weights.

    optax counts steps in int32, of which quotients are float32: its schedules would have seven digits. Here it counts
    in int64, unless the optimizer cannot.
    """

    transformation: Transformation = eqx.field(static=True)

    def start(self, weights: Float[Array, " weights"]) -> Any:
        state = self.transformation.init(weights)
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.int64) if leaf.dtype == jnp.int32 else leaf, state)
        try:
            after = jax.eval_shape(self.transformation.update, weights, wide, weights)[1]
            # Keys of random numbers cannot be cast, nor need it.
            return jax.tree.map(lambda x, of: x if x.dtype == of.dtype else x.astype(of.dtype), state, after)
        except TypeError:  # two branches of it that have different types
            return state

    def step(self, gradient: Float[Array, " weights"], state: Any, weights: Float[Array, " weights"]):
        updates, state = self.transformation.update(gradient, state, weights)
        return (weights + updates).astype(weights.dtype), state


class TrainLoop(eqx.Module, Generic[Model]):
    """A training run as a function from state to state; members of an ensemble are vectorized over a `run` axis.

    `source` and `rule` are one for all runs, or ensembles of as many.
    """

    skeleton: Model
    source: AbstractSource | Ensemble
    rule: AbstractRule | Ensemble
    observables: dict[str, Observable]
    runs: int | None = eqx.field(static=True)

    def begin(self, model: Model | Ensemble, step: int) -> tuple[Array, Any, Int[Array, ""]]:
        """(weights, state of the rule, number of the step), the first two with a first axis `run` for an ensemble."""
        start = self.rule.stacked.start if isinstance(self.rule, Ensemble) else self.rule.start
        weights = flatten(model)
        state = jax.vmap(start)(weights) if isinstance(model, Ensemble) else start(weights)
        # The step is typed, and all is where it will be later: otherwise `advance` would be compiled twice.
        return beside(self.source, (weights, state, jnp.asarray(step, dtype=jnp.int64)))

    def multi_step(
        self, weights: Array, state: Any, step: Int[Array, ""], steps: Int[Array, ""], begun: Bool[Array, ""]
    ):
        """Take `steps` steps of every run, from number `step` on: (losses before them, new weights, new state).

        They may be taken in several calls, of which all but the first have `begun`: each step is then computed by the
        same instructions as in a single call, and has the same digits.
        """

        def in_one_call(weights, state, source, rule):
            loss, model = source.objective.multi_step(unflatten(weights, self.skeleton), rule.rate, steps)
            return loss, jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(model)]), state

        def one_by_one(_, carry):
            weights, state, step = carry
            _, weights, state = self._step(weights, state, step)
            return weights, state, step + 1

        source, rule = (part.stacked if isinstance(part, Ensemble) else part for part in (self.source, self.rule))
        objective = source.objective if isinstance(source, Fixed) else None
        if isinstance(objective, AbstractMultiStep) and isinstance(rule, ConstantRate):
            return self._over_runs(in_one_call, weights, state)
        losses, *moved = self._step(weights, state, step)
        first = (steps > 0) & ~begun
        weights, state = jax.tree.map(lambda new, old: jnp.where(first, new, old), tuple(moved), (weights, state))
        taken = first.astype(steps.dtype)
        weights, state, _ = jax.lax.fori_loop(taken, steps, one_by_one, (weights, state, step + taken))
        return losses, weights, state

    def _step(self, weights: Array, state: Any, step: Int[Array, ""]):
        """One step of every run: (losses before it, new weights, new state)."""

        def single(weights, state, source, rule):
            objective = gradient_form(source.at(step), self.skeleton)
            loss, gradient = jax.value_and_grad(lambda w: objective(unflatten(w, self.skeleton)))(weights)
            return loss, *rule.step(gradient, state, weights)

        return self._over_runs(single, weights, state)

    def _over_runs(self, single: Callable[..., Any], weights: Array, state: Any):
        """A function of the weights, state, source and rule of one run, for all runs."""
        parts = [part.stacked if isinstance(part, Ensemble) else part for part in (self.source, self.rule)]
        if self.runs is None:
            return single(weights, state, *parts)
        axes = [eqx.if_array(0) if isinstance(part, Ensemble) else None for part in (self.source, self.rule)]
        return eqx.filter_vmap(single, in_axes=(0, 0, *axes))(weights, state, *parts)

    def observe(self, weights: Array) -> dict[str, Array]:
        """The observables at these weights."""

        def single(weights):
            model = unflatten(weights, self.skeleton)
            return {name: jnp.asarray(function(model)) for name, function in self.observables.items()}

        return single(weights) if self.runs is None else jax.vmap(single)(weights)


def advance(
    loop: TrainLoop,
    weights: Array,
    state: Any,
    step: Int[Array, ""],
    gaps: Int[Array, " capacity"],
    count: Int[Array, ""],
    *,
    steps: int,
    begun: bool = False,
):
    """Record and step `count` times: at record r the loss and observables are kept, then `gaps[r]` steps are taken.

    A gap of 0 records without stepping. If the first gap has `begun` in an earlier call, the rest of it is taken, and
    what is recorded first is not one of the run's records. Returns the new weights, state and step, and the records, of
    which the first `count` are meant. One compiled program serves any number of records up to the capacity and any
    gaps. In a run of many `steps` it is one that takes longer to compile and less to run.
    """
    return _compiled(steps >= _LONG_RUN)(loop, weights, state, step, gaps, count, jnp.asarray(begun))


@functools.cache
def _compiled(long: bool) -> Callable[..., Any]:
    """`_advance` as a program, for a long run or a short one."""
    return quick_jit(_advance, long=long)


def _advance(loop: TrainLoop, weights: Array, state: Any, step: Array, gaps: Array, count: Array, begun: Array):
    def one(record, carry):
        weights, state, step, losses, observed = carry
        gap = gaps[record]
        observed = jax.tree.map(lambda kept, new: kept.at[record].set(new), observed, loop.observe(weights))
        loss, weights, state = loop.multi_step(weights, state, step, gap, begun & (record == 0))
        return weights, state, step + gap, losses.at[record].set(loss), observed

    shape = () if loop.runs is None else (loop.runs,)
    losses = jnp.zeros((gaps.shape[0], *shape))
    shapes = jax.eval_shape(loop.observe, weights)
    observed = jax.tree.map(lambda s: jnp.zeros((gaps.shape[0], *s.shape), s.dtype), shapes)
    return jax.lax.fori_loop(0, count, one, (weights, state, step, losses, observed))


_SECONDS = 0.4
"""How long a call should take."""


class ChunkSize:
    """`size.steps` is how many steps the next call takes at the most. The first call compiles, and is not measured."""

    def __init__(self, steps: int):
        self.steps = steps
        self._compiled = False

    def measured(self, seconds: float, steps: int) -> None:
        """A call of so many steps took so long."""
        if self._compiled and seconds > 2 * _SECONDS:
            self.steps = max(1, self.steps // 2)
        elif self._compiled and seconds < _SECONDS / 2 and 2 * steps > self.steps:
            self.steps = 2 * self.steps
        self._compiled = True
