"""Run a recording again and measure how far it differs."""

import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell.dynamics import Record, descend, named_optimizer
from stepwell.models import AbstractAttention, AbstractCubicModel, AbstractModel
from stepwell.objectives import AbstractObjective, Moments, Sampled
from stepwell.tasks import Batch, ContextLengths, FeatureBatch
from stepwell.trajectory import model_at

from ._recording import Examples, Recording

Engine = Literal["auto", "moments", "sampled"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


@dataclass(frozen=True)
class Replay:
    """How far a replay differs: the largest absolute deviation of each curve, and of any final weight if recorded.

    - `followed`: how many of the `steps` have every curve within the tolerance, counted up to the first that has not.
    - `reproducible`: where the replay does not match, for how many steps it agrees with itself when weights are rounded
      to float32. Fewer than all: the run amplifies rounding, and a float32 recording cannot be followed beyond.
    - `passed`: whether the run finished, and no curve and no final weight differs by more than the tolerance.
    - `outcome`, `message`: "finished", or "diverged" with advice; what is there is measured, and the replay fails.
    """

    file: str
    engine: Engine
    steps: int
    curves: dict[str, float]
    weights_error: float | None
    followed: int
    reproducible: int | None
    passed: bool
    seconds: float
    outcome: str
    message: str

    @property
    def max_abs_error(self) -> float:
        """The largest deviation of all curves."""
        return max(self.curves.values())

    def summary(self) -> dict[str, Any]:
        """Return the result as a JSON document, in which None stands for infinity."""
        errors = {"": self.max_abs_error, **self.curves}
        finite = {name: error if np.isfinite(error) else None for name, error in errors.items()}
        return {**vars(self), "max_abs_error": finite.pop(""), "curves": finite, "seconds": round(self.seconds, 3)}


@checked
def replay(recording: Recording, *, engine: Engine = "auto", tolerance: float = 5e-6, progress: bool = True) -> Replay:
    """Train a recorded run again from its initial weights and data, and return how far it differs.

    **Arguments:**

    - `recording`: the run, as `load` reads it.
    - `engine`: "moments", for models that are linear in features of the data; "sampled", for all; "auto" is the one
      that takes less work a step.
    - `tolerance`: the largest absolute deviation, of losses and weights, with which the replay passes.
    - `progress`: whether to show a progress bar.

    **Returns:** a `Replay`. Raises `InvalidInput` if the model has no moments and `engine` asks for them.

    **Example:**

    Merged attention at zero weights, a fixed point: the loss stays at the squared label.

    >>> import json
    >>> weights = {"init_value": np.zeros((1, 2, 2)), "init_key_query": np.zeros((1, 2, 2))}
    >>> data = {"tokens": [[[1.0, 2.0], [1.0, 0.0]]], "labels": [[2.0, 2.0]], "loss": [4.0, 4.0, 4.0]}
    >>> np.savez("zero.npz", config=json.dumps({"model": "attnM", "lr": 0.1}), **data, **weights)
    >>> result = sw.experiments.recorded.replay(sw.experiments.recorded.load("zero.npz"), progress=False)
    >>> result.passed, result.max_abs_error
    (True, 0.0)
    """
    begun = time.perf_counter()
    tolerance = checks.number("tolerance", tolerance, least=0.0)
    model = model_of(recording)
    chosen = _choose(recording, model, engine)
    data = {"loss": recording.train, **recording.tests}
    objectives = {name: _objective(recording, model, each, chosen, test=name != "loss") for name, each in data.items()}
    adam = None if recording.optimizer == "sgd" else _adam(recording, model)
    rule = {"rate": recording.rate} if adam is None else {"optimizer": adam}
    trajectory = _run(recording, model, objectives, progress, **rule)
    curves = _curves(trajectory, recording)
    outcome = trajectory.attrs["outcome"]
    errors = {name: _largest(curves[name], recorded) for name, recorded in recording.curves.items()}
    weights_error = _weights_error(recording, model, trajectory) if outcome == "finished" else None
    passed = outcome == "finished" and max(*errors.values(), weights_error or 0.0) <= tolerance
    reproducible = None
    if outcome == "finished" and not passed:
        rounded = rounded_descent(adam or optax.sgd(recording.rate))
        twin = _run(recording, model, objectives, progress, optimizer=rounded)
        reproducible = _followed(_curves(twin, recording), curves, tolerance)
    return Replay(
        file=recording.path,
        engine=chosen,
        steps=recording.steps,
        curves=errors,
        weights_error=weights_error,
        followed=_followed(curves, recording.curves, tolerance),
        reproducible=reproducible,
        passed=passed,
        seconds=time.perf_counter() - begun,
        outcome=outcome,
        message=trajectory.attrs["message"],
    )


def _run(
    recording: Recording, model: AbstractModel, objectives: dict[str, AbstractObjective], progress: bool, **rule: Any
) -> xr.Dataset:
    observed: dict[str, Any] = {name: objective for name, objective in objectives.items() if name != "loss"}
    options: Any = {"record": Record(snapshots=2, observe=observed), "progress": progress, "throw": False, **rule}
    trajectory = descend(model, objectives["loss"], steps=recording.steps, **options)
    if trajectory.attrs["outcome"] == "interrupted":
        raise KeyboardInterrupt
    return trajectory


def _curves(trajectory: xr.Dataset, recording: Recording) -> dict[str, Float[np.ndarray, " steps"]]:
    """What was recorded, as replayed; shorter where the replay diverged."""
    return {name: trajectory[name].values[0, : recording.steps] for name in recording.curves}


def _largest(replayed: Float[np.ndarray, " steps"], recorded: Float[np.ndarray, " all"]) -> float:
    """The largest deviation over the steps that both have; infinite where there are none, or one is not a number."""
    deviation = np.abs(replayed - recorded[: replayed.size]).max(initial=0.0 if replayed.size else np.inf)
    return float(deviation) if np.isfinite(deviation) else np.inf


def _followed(left: dict[str, np.ndarray], right: dict[str, np.ndarray], tolerance: float) -> int:
    """How many steps pass before any curve of one differs from that of the other by more than the tolerance."""
    size = min(curve.size for curve in (*left.values(), *right.values()))
    within = [np.abs(curve[:size] - right[name][:size]) <= tolerance for name, curve in left.items()]
    return int(np.cumprod(np.all(within, axis=0)).sum())


def _choose(recording: Recording, model: AbstractModel, engine: Engine) -> Engine:
    linear = recording.activation == "linear"
    if engine == "moments" and not linear:
        raise InvalidInput(
            f"{recording.path}: {recording.activation} attention has no moments; use the engine sampled, or auto"
        )
    if engine != "auto":
        return engine
    return "moments" if linear and _moment_count(recording) ** 2 <= _sampled_work(recording, model) else "sampled"


def _moment_count(recording: Recording) -> int:
    """How many features the moments are of."""
    width = recording.train.inputs.shape[-1]
    return width if recording.kind.layout == "features" else (width - recording.outputs) * width * (width + 1) // 2


def _sampled_work(recording: Recording, model: AbstractModel) -> int:
    """Numbers that a step through the sequences touches: those of a token and its scores, there and back."""
    heads = next(iter(recording.initial.values())).shape[0]
    numbers = 0
    for examples in (recording.train, *recording.tests.values()):
        sequences, *tokens, width = examples.inputs.shape
        if isinstance(model, AbstractAttention):
            prefixes = tokens[0] - 1 if recording.vary_len and examples is recording.train else 1
            numbers += sequences * prefixes * tokens[0] * (width + 2 * heads)
        else:
            numbers += sequences * (width + heads)
    return 3 * numbers


def _objective(
    recording: Recording, model: AbstractCubicModel, examples: Examples, engine: Engine, *, test: bool
) -> AbstractObjective:
    if engine == "sampled":
        require_memory(
            8 * _sampled_work(recording, model),
            what=f"replaying {recording.path} by the sampled engine",
            instead="use the engine moments if the model is linear, or record fewer sequences",
        )
        return Sampled(data_of(recording, model, examples, test=test))
    require_memory(
        3 * 8 * _moment_count(recording) ** 2,
        what=f"replaying {recording.path} by the moments engine",
        instead="use the engine sampled",
    )
    data = data_of(recording, model, examples, test=test)
    if isinstance(data, FeatureBatch):
        return Moments.of_features(data)
    assert isinstance(model, AbstractAttention)
    return Moments.of_batch(data, normalization=model.normalization, attends_query=model.attends_query)


def _weights_error(recording: Recording, model: AbstractModel, trajectory: xr.Dataset) -> float | None:
    """Over all entries of all final matrices in the recording; None if there are none."""
    if not recording.final:
        return None
    final_weights = whole_weights(recording, model_at(trajectory, model))
    return max(float(np.abs(final_weights[name] - final).max()) for name, final in recording.final.items())


def _adam(recording: Recording, model: AbstractModel) -> Any:
    return named_optimizer(recording.optimizer, rate=recording.rate, steps=recording.steps, model=model).optimizer


def rounded_descent(rule: Any) -> optax.GradientTransformation:
    r"""An optimizer with $W \leftarrow \mathrm{float32}(W + \Delta W)$, everything else in float64."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        changes, state = rule.update(updates, state, params)
        return (params + changes).astype(jnp.float32).astype(params.dtype) - params, state

    return optax.GradientTransformation(rule.init, update)


def model_of(recording: Recording) -> AbstractCubicModel:
    """The model at its initial weights. Parts that never reach a prediction are left out, see `whole_weights`."""
    return recording.kind.build(
        **{name: jnp.asarray(value) for name, value in recording.initial.items()},
        outputs=recording.outputs,
        activation=recording.activation,
        normalization="1/tokens" if recording.vary_len else "none",
    )


def data_of(recording: Recording, model: AbstractCubicModel, examples: Examples, *, test: bool) -> Batch | FeatureBatch:
    """A data set. Only training varies the context length: a test is on whole sequences, as published.

    With several outputs the published features are fewer than the model's: the rest are zero, and get no gradient.
    """
    inputs, labels = jnp.asarray(examples.inputs), jnp.asarray(examples.labels)
    if recording.kind.layout == "features":
        outputs, dim = model.shape
        return FeatureBatch(jnp.pad(inputs, ((0, 0), (0, outputs * dim * dim - inputs.shape[1]))), labels)
    varies = recording.vary_len and not test
    return Batch(inputs, labels, ContextLengths.uniform(inputs.shape[1] - 1) if varies else None)


def whole_weights(recording: Recording, model: AbstractModel) -> dict[str, Float[np.ndarray, "..."]]:
    """The matrices as recorded: the model's weights in their places, the initial values wherever nothing is trained."""
    whole = {}
    for name, weight in model.weights().items():
        whole[name] = recording.initial[name].copy()
        rows, columns = (min(a, b) for a, b in zip(weight.shape[-2:], whole[name].shape[-2:], strict=True))
        place = np.s_[..., -rows:, :columns] if name in recording.kind.last_rows else np.s_[..., :rows, :columns]
        whole[name][place] = np.asarray(weight)[..., :rows, :columns]
    return whole
