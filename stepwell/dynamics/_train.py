"""The host's side of a training run: chunks of bounded time, progress, divergence, interruption."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell import _check
from stepwell._interrupt import Interruptible
from stepwell._memory import require_memory
from stepwell._progress import Meter
from stepwell.models import AbstractModel
from stepwell.trajectory import build

from ._divergence import stable_rate
from ._ensemble import Ensemble, unflatten
from ._march import March, advance, advance_far
from ._record import Steps, record_steps, snapshot_places

_CHUNK_SECONDS = 0.4
"""How long a compiled chunk should take: short enough for progress and Ctrl-C."""
_CAPACITY = 4096
"""Records in a chunk at the most."""
_FAR = 100_000
"""Steps from which a program that takes longer to compile and less to run is worth having."""


class _Chunk(NamedTuple):
    """What one compiled call brought: records, and the weights after them."""

    losses: np.ndarray
    seen: dict[str, np.ndarray]
    weights: Array


def train(
    march: March,
    model: AbstractModel | Ensemble,
    *,
    steps: int,
    start: int,
    record: Steps,
    snapshots: Steps,
    progress: bool,
    configuration: dict[str, Any],
) -> xr.Dataset:
    """Take `steps` steps and return the trajectory; see `descend` for the arguments."""
    steps = _check.whole("steps", steps)
    start = _check.whole("start", start, least=0)
    recorded = record_steps(record, steps)
    places = snapshot_places(snapshots, recorded)
    initial, state, step = march.begin(model, start)
    _require_room(march, initial, recorded.size, places.size)

    go = advance if steps < _FAR else advance_far
    gaps = np.diff(recorded, append=recorded[-1])
    capacity = min(_CAPACITY, 1 << int(recorded.size - 1).bit_length())
    chunks: list[_Chunk] = []
    outcome, size, done = "finished", 16, 0
    weights = initial
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
                result = go(march, weights, state, step, jax.device_put(padded), jnp.asarray(count))
                losses = np.asarray(result[3])[:count]
                elapsed = time.monotonic() - begun
                seen = {name: np.asarray(values)[:count] for name, values in result[4].items()}
                chunks.append(_Chunk(losses, seen, result[0]))
                weights, state, step = result[:3]
                done += count
                if not np.isfinite(losses[-1]).any():
                    outcome = "diverged"
                    break
                # The first call compiles, so its time says nothing about the chunk's size.
                if len(chunks) > 1 and elapsed > 2 * _CHUNK_SECONDS:
                    size = max(1, size // 2)
                elif elapsed < _CHUNK_SECONDS / 2 or len(chunks) == 1:
                    size = min(2 * size, capacity)
                meter.update(done, f"loss {float(np.nanmean(losses[-1])):.4g}")
        except KeyboardInterrupt:
            outcome = "interrupted"
    return _assemble(march, model, initial, recorded, places, chunks, outcome, start, configuration)


def _require_room(march: March, weights: Array, records: int, snapshots: int) -> None:
    observed = jax.tree.leaves(jax.eval_shape(march.look, weights))
    runs = 1 if march.runs is None else march.runs
    needed = 8 * (records * (runs + sum(leaf.size for leaf in observed)) + snapshots * weights.size)
    require_memory(
        2 * needed,
        what=f"recording {records} losses and {snapshots} snapshots of {weights.size} weights",
        instead="record fewer steps (record=, snapshots=)",
    )


def _assemble(
    march: March,
    model: AbstractModel | Ensemble,
    initial: Array,
    recorded: np.ndarray,
    places: np.ndarray,
    chunks: list[_Chunk],
    outcome: str,
    start: int,
    configuration: dict[str, Any],
) -> xr.Dataset:
    """Everything that was recorded up to the last finite loss, as a trajectory."""
    ends = np.cumsum([len(chunk.losses) for chunk in chunks], dtype=int)
    losses = np.concatenate([chunk.losses for chunk in chunks]) if chunks else np.zeros((0, *initial.shape[:-1]))
    finite = np.isfinite(losses).reshape(len(losses), march.runs or 1)
    kept = len(losses) if finite.any(axis=1).all() else int(np.argmin(finite.any(axis=1)))
    message = _message(march, initial, recorded, finite, outcome, start)

    # The weights after a chunk belong to the next recorded step, or after the last record to that one.
    snapshots = {0: initial}
    for end, chunk in zip(ends, chunks, strict=True):
        place = min(int(end), recorded.size - 1)
        if place in places or (chunk is chunks[-1] and outcome == "interrupted"):
            snapshots[place] = chunk.weights
    if outcome == "diverged":
        snapshots = {place: weights for place, weights in snapshots.items() if place < max(kept, 1)}

    def with_run(values: np.ndarray) -> np.ndarray:
        return values[None] if march.runs is None else np.moveaxis(values, 1, 0)

    curves = {"loss": with_run(losses[:kept])}
    for name in march.observe:
        curves[name] = with_run(np.concatenate([chunk.seen[name] for chunk in chunks])[:kept] if chunks else losses)
    template = model.member(0) if isinstance(model, Ensemble) else model
    stacked = np.stack([np.asarray(weights) for weights in snapshots.values()])
    models = unflatten(with_run(stacked), march.skeleton)
    return build(
        axis="step",
        points=start + recorded[:kept],
        curves=curves,
        weight_axis="snapshot",
        weight_points=start + recorded[np.array(list(snapshots))],
        weights={name: np.asarray(getattr(models, name)) for name in models.weight_dims},
        model=template,
        configuration=configuration,
        outcome=outcome if outcome != "finished" or finite.all() else "partly diverged",
        message=message,
    )


def _message(march: March, initial: Array, recorded: np.ndarray, finite: np.ndarray, outcome: str, start: int) -> str:
    if finite.all():
        if outcome == "interrupted":
            return f"interrupted; {len(finite)} of {recorded.size} records were made, and are kept"
        return ""
    run = int(np.argmin(finite.all(axis=0)))
    step = int(recorded[np.argmin(finite[:, run])])
    which = "" if march.runs is None else f" of run {run}"
    return f"the loss{which} is not finite at step {start + step}; {stable_rate(march, initial, run, step)}"
