"""The host's side of a training run: chunks of bounded time, progress, divergence, interruption, the trajectory."""

import dataclasses
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.interrupt import Interruptible, interrupted, interruptible
from stepwell._util.memory import require_memory
from stepwell._util.progress import Meter
from stepwell._util.recipes import recorded_rate
from stepwell.models import AbstractModel
from stepwell.trajectory import build, time_unit

from ._checkpoint import CheckpointPath, Saves, arrays_of, open_saves, with_arrays
from ._conversions import flow_time
from ._devices import beside
from ._divergence import stable_rate
from ._ensemble import Ensemble, skeleton_of, unflatten
from ._loop import (
    AbstractRule,
    AbstractSource,
    ChunkSize,
    ConstantRate,
    Optimizer,
    ScheduledRate,
    TrainLoop,
    Transformation,
    advance,
)
from ._named_optimizer import named_optimizer
from ._record import SNAPSHOTS, Record

_CAPACITY = 4096
"""Records in a chunk at the most."""
_FIRST_STEPS = 16
"""Steps in the first chunk at the most."""


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The keywords of `descend`, which says what each means."""

    rate: Any
    steps: int
    optimizer: Transformation | str | None
    record: Record
    first_step: int
    progress: bool
    configuration: dict[str, Any] | None
    checkpoint: CheckpointPath
    advice: bool = True

    def provenance(self) -> dict[str, Any]:
        """The options that are kept in the provenance of a trajectory."""
        return {
            "rate": recorded_rate(self.rate, self.steps),
            "optimizer": self.optimizer
            if self.optimizer is None or isinstance(self.optimizer, str)
            else "given as an optax transformation",
            "steps": self.steps,
            "first_step": self.first_step,
            "record": self.record.described(),
            "observed": sorted(self.record.observe or ()),
            **(self.configuration or {}),
        }


class _Plan(NamedTuple):
    """Which steps are recorded, and the weights from which the run starts."""

    first_step: int
    steps: int
    recorded: np.ndarray
    """Steps at which losses are kept, counted from `first_step`."""
    places: np.ndarray
    """Places among them at which weights are kept."""
    initial: Array
    """Initial weights."""

    def step(self, now: "_Now") -> int:
        """How many steps have been taken."""
        return int(self.recorded[min(now.done, self.recorded.size - 1)]) + now.taken


class _Now(NamedTuple):
    """Where a run is."""

    done: int
    """Records whose gaps, the steps up to the next one, have been taken."""
    taken: int
    """Steps of the gap after them that have been taken; if any, its record was made too."""
    weights: Array
    state: Any
    """State of the rule."""
    step: Array


@dataclasses.dataclass
class _Progress:
    """What a run has recorded, and where it is. Records beyond those of `now` are not meant."""

    losses: np.ndarray
    observed: dict[str, np.ndarray]
    snapshots: dict[int, np.ndarray]
    """Weights by step."""
    now: _Now
    outcome: str = ""
    message: str = ""

    @property
    def records(self) -> int:
        """How many records were made."""
        return self.now.done + (self.now.taken > 0)

    @property
    def finite(self) -> np.ndarray:
        """Whether the recorded losses are finite: (record, run)."""
        return np.isfinite(self.losses.reshape(len(self.losses), -1)[: self.records])

    def add(self, losses: np.ndarray, observed: dict[str, np.ndarray]) -> None:
        """Keep the next records, if they are: those of a call that went on with a gap are not."""
        if self.now.taken == 0:
            where = slice(self.now.done, self.now.done + len(losses))
            self.losses[where] = losses
            for name, values in observed.items():
                self.observed[name][where] = values

    def saved(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {
            "done": self.now.done,
            "taken": self.now.taken,
            "now": arrays_of((self.now.weights, self.now.state, self.now.step)),
            "losses": self.losses[: self.records],
            "observed": {name: values[: self.records] for name, values in self.observed.items()},
            "steps": list(self.snapshots),
            "snapshots": list(self.snapshots.values()),
            "outcome": self.outcome,
            "message": self.message,
        }


@interruptible
def train(
    model: AbstractModel | Ensemble,
    source: AbstractSource | Ensemble,
    options: TrainOptions,
    about: dict[str, Any],
) -> xr.Dataset:
    """Follow the gradients of a source and return the trajectory. `about` says what the source is, for provenance."""
    template = model.member(0) if isinstance(model, Ensemble) else model
    runs = model.size if isinstance(model, Ensemble) else None
    rule, observables = _rule(model, options), dict(options.record.observe or {})
    reserved = {"loss", *template.weight_dims} & set(observables)
    if reserved:
        raise InvalidInput(
            f"observed curves {sorted(reserved)} have names that the trajectory uses itself; rename them"
        )
    loop = TrainLoop(skeleton_of(template), source, rule, observables, runs)
    steps = checks.whole("steps", options.steps)
    first = checks.whole("first_step", options.first_step, least=0)
    record = options.record
    recorded = record.steps(steps)
    kept = dataclasses.replace(record, snapshots=SNAPSHOTS) if record.snapshots is None else record
    initial, state, step = loop.begin(model, first)
    plan = _Plan(first, steps, recorded, kept.places(recorded), initial)
    _require_memory(loop, plan)
    arguments = {
        **about,
        "model": model,
        "rate": float(options.rate) if _is_number(options.rate) else options.rate,
        "optimizer": (options.optimizer, state) if options.optimizer is not None else None,
        "steps": steps,
        "first step": first,
        "recorded steps": recorded,
        "snapshots": plan.places,
        "observables": observables,
    }
    saves = open_saves(options.checkpoint, arguments)
    progress = _begin(loop, plan, _Now(0, 0, initial, state, step), saves.state)
    if not progress.outcome:
        _run(loop, plan, progress, saves, options.progress)
        progress.message = _message(loop, plan, progress, options.advice)
        if progress.outcome != "interrupted":
            saves.save(progress.saved)
    configuration = {**about, "model": model, **options.provenance()}
    return _with_time(_assemble(loop, plan, progress, template, configuration), options, time_unit(template))


def _rule(model: AbstractModel | Ensemble, options: TrainOptions) -> AbstractRule | Ensemble:
    rate = options.rate
    if isinstance(options.optimizer, str):
        if not callable(rate) and not _is_number(rate):
            raise InvalidInput(
                f"rate is {rate!r} beside the optimizer {options.optimizer!r}; give its learning rate, one number or a "
                "schedule"
            )
        made = named_optimizer(options.optimizer, rate=rate, steps=max(options.steps, 1), model=model)
        return Optimizer(made.optimizer)
    if (rate is None) == (options.optimizer is None):
        given = "neither a rate nor" if rate is None else "both a rate and"
        raise InvalidInput(
            f"{given} an optimizer was given; give either a rate, for plain gradient descent, or an optimizer; only "
            "beside the name of an optimizer, such as 'adam', give its rate"
        )
    if options.optimizer is not None:
        return Optimizer(options.optimizer)
    if callable(rate):
        _check_schedule(rate)
        return ScheduledRate(rate, jnp.asarray(options.first_step, dtype=jnp.int64))
    if not isinstance(rate, list | tuple) and np.ndim(rate) == 0:
        return ConstantRate(jnp.asarray(checks.number("rate", rate, least=0.0, above=True)))
    rates = checks.numbers_in("rate", rate).ravel()
    if not np.all(rates > 0):
        checks.number("rate", float(rates[~(rates > 0)][0]), least=0.0, above=True)
    if not isinstance(model, Ensemble) or len(rates) != model.size:
        raise InvalidInput(f"{len(rates)} rates were given; give one number, or one for each run of an ensemble")
    first = ConstantRate(jnp.asarray(rates[0]))
    return Ensemble(eqx.tree_at(lambda rule: rule.rate, first, jnp.asarray(rates)), model.size)


def _require_memory(loop: TrainLoop, plan: _Plan) -> None:
    observed = jax.tree.leaves(jax.eval_shape(loop.observe, plan.initial))
    runs = 1 if loop.runs is None else loop.runs
    records, snapshots, weights = plan.recorded.size, plan.places.size, plan.initial.size
    needed = 8 * (records * (runs + sum(leaf.size for leaf in observed)) + snapshots * weights)
    require_memory(
        2 * needed,
        what=f"recording {records} losses and {snapshots} snapshots of {weights} weights",
        instead="record less: Record(every=…, snapshots=…)",
    )


def _begin(loop: TrainLoop, plan: _Plan, now: _Now, saved: dict[str, Any] | None) -> _Progress:
    """A run before its first step, or as it was saved."""
    runs = () if loop.runs is None else (loop.runs,)
    shapes = jax.eval_shape(loop.observe, plan.initial)
    progress = _Progress(
        losses=np.empty((plan.recorded.size, *runs)),
        observed={name: np.empty((plan.recorded.size, *of.shape), of.dtype) for name, of in shapes.items()},
        snapshots={0: np.asarray(plan.initial)},
        now=now,
    )
    if saved is not None:
        there = with_arrays((now.weights, now.state, now.step), saved["now"])
        progress.now = _Now(saved["done"], saved["taken"], *beside(loop.source, jax.device_put(there)))
        progress.losses[: progress.records] = saved["losses"]
        for name, values in progress.observed.items():
            values[: progress.records] = saved["observed"][name]
        progress.snapshots = dict(zip(saved["steps"], saved["snapshots"], strict=True))
        progress.outcome, progress.message = saved["outcome"], saved["message"]
    return progress


def _run(loop: TrainLoop, plan: _Plan, progress: _Progress, saves: Saves, shown: bool) -> None:
    """Go on to the end, a divergence or an interruption, in chunks of as many steps as take a moment.

    The clock decides where a run is cut into chunks; its digits do not depend on that.
    """
    recorded, places = plan.recorded, plan.places
    gaps = np.diff(recorded, append=recorded[-1])
    capacity = min(_CAPACITY, 1 << int(recorded.size - 1).bit_length())
    size = ChunkSize(_FIRST_STEPS)
    with Meter("training", plan.steps, shown=shown, steady=True) as meter, Interruptible() as ctrl_c:
        try:
            while progress.now.done < recorded.size:
                if ctrl_c.pressed:
                    raise KeyboardInterrupt
                done, taken, weights, state, step = progress.now
                boundary = places[np.searchsorted(places, done, side="right")] if done < places[-1] else recorded.size
                pieces = _pieces(gaps[done : min(boundary, done + capacity)], taken, size.steps)
                count = pieces.size
                padded = np.zeros(capacity, dtype=np.int64)
                padded[:count] = pieces
                start = time.monotonic()
                *moved, records, observed = advance(
                    loop,
                    *(weights, state, step),
                    jax.device_put(padded),
                    jnp.asarray(count),
                    steps=plan.steps,
                    begun=taken > 0,
                )
                losses = np.asarray(records)[:count]
                size.measured(time.monotonic() - start, int(pieces.sum()))
                progress.add(losses, {name: np.asarray(values)[:count] for name, values in observed.items()})
                there = (done + count, 0) if taken + pieces[0] == gaps[done] else (done, taken + int(pieces[0]))
                now = _Now(*there, *moved)
                # Before `now`: giving up comes anywhere, and what is saved then must have all snapshots up to there.
                if there[1] == 0 and (there[0] in places or there[0] == recorded.size):
                    progress.snapshots[plan.step(now)] = np.asarray(moved[0])
                progress.now = now
                if taken == 0 and not np.isfinite(losses[-1]).any():
                    progress.outcome = "diverged"
                    return
                saves.save_if_due(progress.saved)
                finite = losses[-1][np.isfinite(losses[-1])]
                meter.update(plan.step(progress.now), f"loss {finite.mean():.4g}" if finite.size else "")
        except KeyboardInterrupt:
            if progress.records:
                saves.save(progress.saved)
            progress.outcome = "interrupted"
            return
    progress.outcome = "finished"


def _pieces(gaps: np.ndarray, taken: int, most: int) -> np.ndarray:
    """How many steps one call takes after each of the next records, at the most so many in all.

    A gap of more than that is taken in several calls; so is one of which some steps were taken already.
    """
    if taken or gaps[0] > most:
        return np.minimum(gaps[:1] - taken, most)
    return gaps[: np.searchsorted(np.cumsum(gaps), most, side="right")]


def _assemble(
    loop: TrainLoop, plan: _Plan, progress: _Progress, template: AbstractModel, configuration: dict[str, Any]
) -> xr.Dataset:
    """Everything that was recorded up to the last finite loss, as a trajectory."""
    outcome, finite = progress.outcome, progress.finite
    kept = len(finite) if finite.any(axis=1).all() else int(np.argmin(finite.any(axis=1)))
    snapshots = progress.snapshots
    if outcome == "interrupted":  # the weights from which to go on
        snapshots = {**snapshots, plan.step(progress.now): np.asarray(progress.now.weights)}
    if outcome == "diverged":
        snapshots = {step: weights for step, weights in snapshots.items() if step <= plan.recorded[max(kept - 1, 0)]}

    def with_run(values: np.ndarray) -> np.ndarray:
        return values[None] if loop.runs is None else np.moveaxis(values, 1, 0)

    curves = {"loss": progress.losses, **progress.observed}
    models = unflatten(with_run(np.stack(list(snapshots.values()))), loop.skeleton)
    return build(
        axis="step",
        points=plan.first_step + plan.recorded[:kept],
        curves={name: with_run(values[:kept]) for name, values in curves.items()},
        weight_axis="snapshot",
        weight_points=plan.first_step + np.array(list(snapshots)),
        weights={name: np.asarray(weight) for name, weight in models.weights().items()},
        model=template,
        configuration=configuration,
        outcome=outcome if outcome != "finished" or finite.all() else "partly diverged",
        message=progress.message,
    )


def _message(loop: TrainLoop, plan: _Plan, progress: _Progress, advised: bool) -> str:
    finite = progress.finite
    if finite.all():
        if progress.outcome == "interrupted":
            return f"{interrupted()}; {len(finite)} of {plan.recorded.size} records were made, and are kept"
        return ""
    run = int(np.argmin(finite.all(axis=0)))
    step = int(plan.recorded[np.argmin(finite[:, run])])
    which = "" if loop.runs is None else f" of run {run}"
    rates = np.asarray(loop.rule.stacked.rate) if isinstance(loop.rule, Ensemble) else np.zeros(0)
    if np.unique(rates).size > 1:  # which rates are stable is known already
        diverged = rates[~finite.all(axis=0)]
        advice = (
            f"of {rates.size} runs {diverged.size} diverged, at rates from {diverged.min():.3g} on; the rates of all "
            f"are {rates.min():.3g} to {rates.max():.3g}"
        )
    elif not advised:
        advice = "lower the rate"
    else:
        advice = stable_rate(loop, plan.initial, run, step)
    return f"the loss{which} is not finite at step {plan.first_step + step}; {advice}"


def _is_number(rate: Any) -> bool:
    return rate is not None and not callable(rate) and np.ndim(rate) == 0


def _check_schedule(schedule: Any) -> None:
    """A schedule of optax, or any function of the number of the step that JAX can trace."""
    try:
        made = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int64))
        fine = made.shape == () and jnp.issubdtype(made.dtype, jnp.floating)
    except Exception as error:
        raise InvalidInput(
            f"rate cannot be called with the number of a step ({type(error).__name__}: {str(error).splitlines()[0]}); "
            "give a number, or a schedule of optax, such as optax.cosine_decay_schedule(0.1, 1000)"
        ) from None
    if not fine:
        raise InvalidInput("rate is a function that does not return one number; give a number, or a schedule of optax")


def _with_time(trajectory: xr.Dataset, options: TrainOptions, unit: str) -> xr.Dataset:
    r"""Beside the step, the flow time $t/\tau = 2\sum\eta$, where rates are known; for snapshots `snapshot_time`."""
    rate = options.rate
    if rate is None or options.optimizer is not None:
        return trajectory
    coordinates = {}
    for axis, name in (("step", "time"), ("snapshot", "snapshot_time")):
        steps = trajectory[axis].values
        if callable(rate):
            last = int(steps.max(initial=0))
            rates = np.asarray(jax.vmap(rate)(jnp.arange(max(last, 1))))
            times = (axis,), np.concatenate([[0.0], np.cumsum(flow_time(1.0, 1.0) * rates)])[steps]
        elif _is_number(rate):
            times = (axis,), flow_time(steps, float(rate))
        else:
            times = ("run", axis), np.asarray(flow_time(steps * np.ravel(rate)[:, None], 1.0))
        coordinates[name] = (*times, {"units": unit})
    return trajectory.assign_coords(coordinates)
