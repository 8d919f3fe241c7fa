"""The run of an experiment as the page computes it: a draft first, in parts, given up when a newer one waits.

The numbers are those of `Experiment.run`. What differs is that weights are recorded as a curve, of which snapshots are
taken afterwards: a snapshot ends a compiled call, and there are hundreds.
"""

import dataclasses
import time as clock
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from stepwell._util.types import Loss
from stepwell.dynamics import Record, descend, prepare_lsoda
from stepwell.experiments import Built, Descent, Experiment, Flow, Online
from stepwell.models import AbstractModel, SpectralAttention, is_attention, is_spectral
from stepwell.objectives import AbstractObjective, Population, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.trajectory import build

from ._view import Cancelled, Stop

SECONDS = 20.0  # a view may take so long; what has been computed by then is shown
_DRAFT, _DRAFT_POINTS = 1e-2, 80
"""Relative tolerance of a draft of a flow, which is as good as the eye; and its points, about as many as its steps."""
_DRAFT_FROM = 6  # dimension from which on a draft comes first: it takes half the time there
_LONG_FROM, _PAUSE = 100, 0.15
"""Weights from which on the rest takes so long that it waits, so many seconds, whether a newer state comes."""
_FEW_DIMENSIONS = 16  # dimension up to which the map of one output has few coefficients, as `flow` counts them
_PART = 0.5  # seconds of training on sequences after which a view is sent, and a newer state taken
_SNAPSHOTS = (1, 3, 7, 15)  # snapshots of a part; each number is compiled
_WEIGHTS = "explorer_weights"

Share = Callable[[float, xr.Dataset], None]  # takes how far the work is, from 0 to 1, and the trajectory so far


def trajectory(experiment: Experiment, built: Built, share: Share, stop: Stop, *, long: bool) -> xr.Dataset:
    """The run of an experiment, of which parts are shared if it is `long`, cut off where it does not end in time.
    `Cancelled` is raised where `stop` says so."""
    training, time = experiment.build_training(), experiment.time_scale
    record, (task, model, objective) = experiment.build_record(), built
    if isinstance(objective, Spectral) and is_spectral(model):
        model, objective = traced(built)
        if isinstance(training, Flow):
            compile_jacobian(model, objective)
    if isinstance(training, Descent) and training.plain and not isinstance(objective, Online):
        steps = record.steps(training.steps)
        run = _Descent(experiment, training, model, objective, steps, steps[record.places(steps)])
        return run.in_parts(share, stop) if long else run.at_once()
    options: dict[str, Any] = {"progress": False, "configuration": {"task": task}, "throw": False}
    if isinstance(training, Flow) and _chooses_rodas(model, objective):
        options["solver"] = "rodas5p"  # what would be chosen, without the time that choosing takes
    if isinstance(training, Flow) and not long and task.dim >= _DRAFT_FROM and objective is built.objective:
        draft = Flow(training.until, max(_DRAFT, training.tolerance))
        rough = draft.run(model, objective, dataclasses.replace(record, points=_DRAFT_POINTS), time, **options)
        rough.attrs["outcome"] = "draft"
        share(0.3, rough)
        give_way(model, stop)
    return training.run(model, objective, record, time, **options)


def _chooses_rodas(model: AbstractModel, objective: Any) -> bool:
    """Whether the loss is surely quadratic in few coefficients, those of the map."""
    if not isinstance(objective, Population) or not is_attention(model):
        return False
    return model.shape[0] == 1 and model.shape[1] <= _FEW_DIMENSIONS


def give_way(model: AbstractModel, stop: Stop) -> None:
    """Raise `Cancelled` if a newer state waits; before longer work, also if one comes within a moment."""
    weights = sum(weight.size for weight in model.weights().values())
    end = clock.monotonic() + (_PAUSE if weights > _LONG_FROM else 0.0)
    while not stop():
        if clock.monotonic() >= end:
            return
        clock.sleep(0.01)
    raise Cancelled


class _Recorded(NamedTuple):
    """Steps of a descent with the loss at each; and all weights at some of them, the first and the last among these."""

    steps: np.ndarray
    loss: Float[np.ndarray, " record"]
    snapshots: np.ndarray
    weights: Float[np.ndarray, "snapshot weight"]
    outcome: str
    message: str

    def joined(self, further: "_Recorded") -> "_Recorded":
        """Both, without the point that they share."""
        arrays = zip(self[:4], further[:4], strict=True)
        steps, loss, snapshots, weights = (np.concatenate([one, other[1:]]) for one, other in arrays)
        return further._replace(steps=steps, loss=loss, snapshots=snapshots, weights=weights)


class _Descent(NamedTuple):
    """Gradient descent at a constant rate, its loss recorded at `steps`, and weights at some of them, `snapshots`."""

    experiment: Experiment
    training: Descent
    model: AbstractModel
    objective: Any
    steps: np.ndarray
    snapshots: np.ndarray

    def at_once(self) -> xr.Dataset:
        return self._trajectory(self._descended(self.model, self.steps))

    def in_parts(self, share: Share, stop: Stop) -> xr.Dataset:
        """The same in parts, each of which is shared."""
        ends, begun = self.snapshots, clock.monotonic()
        model, made, place, pace = self.model, None, 0, np.inf
        while place < ends.size - 1:
            if stop():
                raise Cancelled
            if made is not None and clock.monotonic() - begun > SECONDS:
                message = f"after {SECONDS:.0f} s there are {ends[place]} of {ends[-1]} steps; take fewer sequences, "
                message += "heads or steps, or run it with the command below"
                return self._trajectory(made._replace(outcome="cut off", message=message))
            started, end = clock.monotonic(), _end_of_part(ends, place, pace)
            within = (self.steps >= ends[place]) & (self.steps <= ends[end])
            part = self._descended(model, self.steps[within])
            made = part if made is None else made.joined(part)
            if made.outcome != "finished":
                return self._trajectory(made)
            model = model.with_weights(_shaped(self.model, made.weights[-1]))
            pace = min(pace, (clock.monotonic() - started) / float(ends[end] - ends[place]))
            place = end
            if place < ends.size - 1:
                so_far = made._replace(outcome=f"step {ends[place]} of {ends[-1]}")
                share(float(ends[place] / ends[-1]), self._trajectory(so_far))
        assert made is not None
        return self._trajectory(made)

    def _descended(self, model: AbstractModel, steps: np.ndarray) -> _Recorded:
        run = descend(
            model,
            self.objective,
            rate=self.training.rate,
            steps=int(steps[-1] - steps[0]),
            record=Record(points=steps - steps[0], snapshots=2, observe=_OBSERVED),
            progress=False,
            advice=False,
            throw=False,
        )
        made, ended = steps[0] + run["step"].values, (run.attrs["outcome"], run.attrs["message"])
        kept = np.isin(made, self.snapshots)
        kept[-1] = True  # of a run that diverges
        return _Recorded(made, run["loss"].values[0], made[kept], run[_WEIGHTS].values[0][kept], *ended)

    def _trajectory(self, recorded: _Recorded) -> xr.Dataset:
        time = self.experiment.time_scale
        run = build(
            axis="step",
            points=recorded.steps,
            curves={"loss": recorded.loss[None]},
            weight_axis="snapshot",
            weight_points=recorded.snapshots,
            weights={name: values[None] for name, values in _shaped(self.model, recorded.weights).items()},
            model=self.model,
            configuration={"dynamics": "descend", "model": self.model, "rate": self.training.rate},
            outcome=recorded.outcome,
            message=recorded.message,
        )
        times = {"time": ("step", recorded.steps), "snapshot_time": ("snapshot", recorded.snapshots)}
        return run.assign_coords(
            {
                name: (axis, time.of_steps(steps.astype(float), self.training.rate), {"units": time.unit})
                for name, (axis, steps) in times.items()
            }
        )


def _end_of_part(snapshots: np.ndarray, place: int, pace: float) -> int:
    """The snapshot at which a part ends that begins at `place`, at so many seconds a step at the most."""
    allowed = [
        place + count
        for count in _SNAPSHOTS
        if place + count < snapshots.size and (snapshots[place + count] - snapshots[place]) * pace <= _PART
    ]
    left = snapshots.size - 1 - place
    return max([*allowed, place + min(_SNAPSHOTS[0], left)])


def _flat(model: AbstractModel) -> Float[Array, " weights"]:
    return jnp.concatenate([jnp.ravel(weight) for weight in model.weights().values()])


_OBSERVED = {_WEIGHTS: _flat}  # one object for all runs, or each would be compiled anew


def _shaped(model: AbstractModel, flat: np.ndarray) -> dict[str, np.ndarray]:
    """Weights by name, from those that `_flat` made, over further dimensions before."""
    made, place = {}, 0
    for name, weight in model.weights().items():
        made[name] = flat[..., place : place + weight.size].reshape(*flat.shape[:-1], *weight.shape)
        place += weight.size
    return made


class TracedSpectral(AbstractObjective):
    """What `objectives.Spectral` computes, of models that `traced` returns; dimensions and scale are arrays here."""

    dims: Float[Array, " task"]
    signals: Float[Array, " task"]
    noise: Float[Array, ""]
    inverse_length: Float[Array, ""]
    score_scale: Float[Array, ""]

    def __call__(self, model: AbstractModel) -> Loss:
        assert isinstance(model, SpectralAttention)
        omega, mu = model.key * model.query * (self.score_scale / self.dims), model.value * model.output
        overlaps = jnp.exp((omega * self.dims) @ omega.T)
        reached, spread = jnp.sum(mu * omega, axis=0), jnp.sum(mu * (overlaps @ mu), axis=0)
        losses = self.signals * (1 - reached) ** 2 + (self.signals + self.noise) * self.inverse_length * spread
        return jnp.sum(losses)

    def check(self, model: AbstractModel) -> None:
        pass

    def floor(self, model: AbstractModel) -> float | None:
        return None


def traced(built: Built) -> tuple[SpectralAttention, TracedSpectral]:
    """The initial model and the loss of a run: the dimensions of the tasks are in the loss, and not in the model."""
    task, model, _ = built
    assert isinstance(task, MultiTaskRegression) and isinstance(model, SpectralAttention)
    numbers = [np.array(task.dims, float), task.signals, task.noise_variance, 1 / task.context.counts[0]]
    loss = TracedSpectral(*(jax.device_put(np.asarray(number, float)) for number in (*numbers, model.score_scale)))
    ones = (1,) * len(task.dims)
    return SpectralAttention(model.key, model.query, model.value, model.output, dims=ones, score_scale=1.0), loss


_STIFF: set[tuple[int, ...]] = set()


def compile_jacobian(model: SpectralAttention, loss: TracedSpectral) -> None:
    """Compile what LSODA needs once a run turns stiff, so that no slider has to."""
    if model.key.shape not in _STIFF:
        prepare_lsoda(model, loss)
        _STIFF.add(model.key.shape)
