"""The host's side of a training run: chunks of bounded time, progress, divergence, interruption, the trajectory."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._interrupt import Interruptible
from stepwell._memory import require_memory
from stepwell._progress import Meter
from stepwell.models import AbstractModel
from stepwell.trajectory import TIME_UNIT, build

from ._conversions import flow_time
from ._divergence import stable_rate
from ._ensemble import Ensemble, skeleton_of, unflatten
from ._loop import AbstractRule, AbstractSource, ConstantRate, Optimiser, TrainLoop, advance
from ._options import TrainOptions
from ._record import record_steps, snapshot_places

_CHUNK_SECONDS = 0.4
"""How long a compiled chunk should take: short enough for progress and Ctrl-C."""
_CAPACITY = 4096
"""Records in a chunk at the most."""


class _Plan(NamedTuple):
    """Which steps are recorded, and the weights from which the run starts."""

    start: int
    steps: int
    recorded: np.ndarray
    """Steps at which losses are kept, counted from `start`."""
    places: np.ndarray
    """Places among them at which weights are kept."""
    initial: Array
    """Initial weights."""


class _Chunk(NamedTuple):
    """What one compiled call returned: records, and the weights after them."""

    losses: np.ndarray
    observed: dict[str, np.ndarray]
    weights: Array


def train(
    model: AbstractModel | Ensemble,
    source: AbstractSource | Ensemble,
    options: TrainOptions,
    about: dict[str, Any],
) -> xr.Dataset:
    """Follow the gradients of a source and return the trajectory. `about` says what the source is, for provenance."""
    template = model.member(0) if isinstance(model, Ensemble) else model
    runs = model.size if isinstance(model, Ensemble) else None
    rule, observables = _rule(model, options), dict(options.observe or {})
    reserved = {"loss", *template.weight_dims} & set(observables)
    if reserved:
        raise InvalidInput(
            f"observed curves {sorted(reserved)} have names that the trajectory uses itself; rename them"
        )
    loop = TrainLoop(skeleton_of(template), source, rule, observables, runs)
    steps = _check.whole("steps", options.steps)
    start = _check.whole("start", options.start, least=0)
    recorded = record_steps(options.record, steps)
    initial, state, step = loop.begin(model, start)
    plan = _Plan(start, steps, recorded, snapshot_places(options.snapshots, recorded), initial)
    _require_memory(loop, plan)
    chunks, outcome = _run(loop, plan, state, step, options.progress)
    configuration = {**about, "model": model, **options.provenance()}
    return _with_time(_assemble(loop, plan, chunks, outcome, template, configuration), options.rate)


def _rule(model: AbstractModel | Ensemble, options: TrainOptions) -> AbstractRule | Ensemble:
    rate = options.rate
    if (rate is None) == (options.optimiser is None):
        given = "neither a rate nor" if rate is None else "both a rate and"
        raise InvalidInput(
            f"{given} an optimiser was given; give either a rate, for plain gradient descent, or an optimiser"
        )
    if options.optimiser is not None:
        return Optimiser(options.optimiser)
    if not isinstance(rate, list | tuple) and np.ndim(rate) == 0:
        return ConstantRate(jnp.asarray(_check.number("rate", rate, least=0.0, above=True)))
    rates = [_check.number("rate", value, least=0.0, above=True) for value in _check.numbers_in("rate", rate).ravel()]
    if not isinstance(model, Ensemble) or len(rates) != model.size:
        raise InvalidInput(f"{len(rates)} rates were given; give one number, or one for each run of an ensemble")
    return Ensemble.of([ConstantRate(jnp.asarray(value)) for value in rates])


def _require_memory(loop: TrainLoop, plan: _Plan) -> None:
    observed = jax.tree.leaves(jax.eval_shape(loop.observe, plan.initial))
    runs = 1 if loop.runs is None else loop.runs
    records, snapshots, weights = plan.recorded.size, plan.places.size, plan.initial.size
    needed = 8 * (records * (runs + sum(leaf.size for leaf in observed)) + snapshots * weights)
    require_memory(
        2 * needed,
        what=f"recording {records} losses and {snapshots} snapshots of {weights} weights",
        instead="record fewer steps (record=, snapshots=)",
    )


def _run(loop: TrainLoop, plan: _Plan, state: Any, step: Array, progress: bool) -> tuple[list[_Chunk], str]:
    """All chunks up to the end, a divergence or an interruption, and which of these it was."""
    recorded, places = plan.recorded, plan.places
    gaps = np.diff(recorded, append=recorded[-1])
    capacity = min(_CAPACITY, 1 << int(recorded.size - 1).bit_length())
    chunks: list[_Chunk] = []
    weights, size, done = plan.initial, 16, 0
    with Meter("training", recorded.size, shown=progress) as meter, Interruptible() as ctrl_c:
        try:
            while done < recorded.size:
                if ctrl_c.pressed:
                    raise KeyboardInterrupt
                boundary = places[np.searchsorted(places, done, side="right")] if done < places[-1] else recorded.size
                count = int(min(size, capacity, boundary - done))
                padded = np.zeros(capacity, dtype=np.int64)
                padded[:count] = gaps[done : done + count]
                begun = time.monotonic()
                weights, state, step, records, observed = advance(
                    loop, weights, state, step, jax.device_put(padded), jnp.asarray(count), steps=plan.steps
                )
                losses = np.asarray(records)[:count]
                elapsed = time.monotonic() - begun
                observed = {name: np.asarray(values)[:count] for name, values in observed.items()}
                chunks.append(_Chunk(losses, observed, weights))
                done += count
                if not np.isfinite(losses[-1]).any():
                    return chunks, "diverged"
                # The first call compiles, so its time says nothing about the chunk's size.
                if len(chunks) > 1 and elapsed > 2 * _CHUNK_SECONDS:
                    size = max(1, size // 2)
                elif elapsed < _CHUNK_SECONDS / 2 or len(chunks) == 1:
                    size = min(2 * size, capacity)
                meter.update(done, f"loss {float(np.nanmean(losses[-1])):.4g}")
        except KeyboardInterrupt:
            return chunks, "interrupted"
    return chunks, "finished"


def _assemble(
    loop: TrainLoop,
    plan: _Plan,
    chunks: list[_Chunk],
    outcome: str,
    template: AbstractModel,
    configuration: dict[str, Any],
) -> xr.Dataset:
    """Everything that was recorded up to the last finite loss, as a trajectory."""
    recorded, initial = plan.recorded, plan.initial
    ends = np.cumsum([len(chunk.losses) for chunk in chunks], dtype=int)
    losses = np.concatenate([chunk.losses for chunk in chunks]) if chunks else np.zeros((0, *initial.shape[:-1]))
    finite = np.isfinite(losses).reshape(len(losses), loop.runs or 1)
    kept = len(losses) if finite.any(axis=1).all() else int(np.argmin(finite.any(axis=1)))

    # The weights after a chunk belong to the next recorded step, or after the last record to that one.
    snapshots = {0: initial}
    for end, chunk in zip(ends, chunks, strict=True):
        place = min(int(end), recorded.size - 1)
        if place in plan.places or (chunk is chunks[-1] and outcome == "interrupted"):
            snapshots[place] = chunk.weights
    if outcome == "diverged":
        snapshots = {place: weights for place, weights in snapshots.items() if place < max(kept, 1)}

    def with_run(values: np.ndarray) -> np.ndarray:
        return values[None] if loop.runs is None else np.moveaxis(values, 1, 0)

    curves = {"loss": with_run(losses[:kept])}
    for name in loop.observables:
        observed = np.concatenate([chunk.observed[name] for chunk in chunks])[:kept] if chunks else losses
        curves[name] = with_run(observed)
    stacked = np.stack([np.asarray(weights) for weights in snapshots.values()])
    models = unflatten(with_run(stacked), loop.skeleton)
    return build(
        axis="step",
        points=plan.start + recorded[:kept],
        curves=curves,
        weight_axis="snapshot",
        weight_points=plan.start + recorded[np.array(list(snapshots))],
        weights={name: np.asarray(getattr(models, name)) for name in models.weight_dims},
        model=template,
        configuration=configuration,
        outcome=outcome if outcome != "finished" or finite.all() else "partly diverged",
        message=_message(loop, plan, finite, outcome),
    )


def _message(loop: TrainLoop, plan: _Plan, finite: np.ndarray, outcome: str) -> str:
    if finite.all():
        if outcome == "interrupted":
            return f"interrupted; {len(finite)} of {plan.recorded.size} records were made, and are kept"
        return ""
    run = int(np.argmin(finite.all(axis=0)))
    step = int(plan.recorded[np.argmin(finite[:, run])])
    which = "" if loop.runs is None else f" of run {run}"
    advice = stable_rate(loop, plan.initial, run, step)
    return f"the loss{which} is not finite at step {plan.start + step}; {advice}"


def _with_time(trajectory: xr.Dataset, rate) -> xr.Dataset:
    r"""Beside the step, the flow time $t/\tau = 2\eta\cdot$step, where all runs have one constant rate."""
    if rate is None or np.ndim(rate) > 0:
        return trajectory
    time = flow_time(trajectory["step"], float(rate))
    return trajectory.assign_coords(time=time.assign_attrs(units=TIME_UNIT))
