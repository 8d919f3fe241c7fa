"""The model, the data and the whole weight matrices of a recording, as the other rooms have them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell.models import AbstractModel, CubicMLP, MergedAttention, MultiHeadAttention, SeparateAttention
from stepwell.tasks import Batch, ContextLengths, FeatureBatch

from ._recording import Examples, Recording


def model_of(recording: Recording) -> AbstractModel:
    """The model at its initial weights. Parts that never reach a prediction are left out, see `whole_weights`."""
    weights = {name: jnp.asarray(value) for name, value in recording.initial.items()}
    options: dict[str, Any] = {
        "activation": recording.activation,
        "normalisation": "1/tokens" if recording.vary_len else "none",
    }
    if recording.kind == "attnM":
        return MergedAttention.from_matrices(**weights, outputs=recording.outputs, **options)
    if recording.kind == "attnS":
        return SeparateAttention.from_matrices(**weights, outputs=recording.outputs, **options)
    if recording.kind == "mlp":
        hidden = weights["hidden"]
        return CubicMLP(weights["readout"], _padded(hidden, -1, _feature_count(recording)))
    # Keys and values may be of different width: rows of zeros make them one, and stay zero, as each meets zeros in the
    # matrix that it is multiplied with. The recorded score is over the root of the token's width, whatever the head's.
    width = max(weights["key"].shape[1], weights["value"].shape[1])
    rows = {name: _padded(weights[name], 1, width) for name in ("query", "key", "value")}
    rows["output"] = _padded(weights["output"], 2, width)
    return MultiHeadAttention.from_matrices(**rows, **options, score_scale=weights["key"].shape[2] ** -0.5)


def data_of(recording: Recording, examples: Examples, *, test: bool) -> Batch | FeatureBatch:
    """A data set. Only training varies the context length: a test is on whole sequences, as published."""
    inputs, labels = jnp.asarray(examples.inputs), jnp.asarray(examples.labels)
    if recording.kind == "mlp":
        return FeatureBatch(_padded(inputs, -1, _feature_count(recording)), labels)
    varies = recording.vary_len and not test
    return Batch(inputs, labels, ContextLengths.uniform(inputs.shape[1] - 1) if varies else None)


def whole_weights(recording: Recording, model: AbstractModel) -> dict[str, Float[np.ndarray, "..."]]:
    """The matrices as recorded: the model's weights in their places, the initial values wherever nothing is trained."""
    whole = {}
    for name, weight in model.weights().items():
        whole[name] = recording.initial[name].copy()
        # Trained are the last rows of an attention's value matrix; of every other matrix, the first rows and columns.
        tail = recording.kind in ("attnM", "attnS") and name == "value"
        rows, columns = (min(a, b) for a, b in zip(weight.shape[-2:], whole[name].shape[-2:], strict=True))
        place = np.s_[..., -rows:, :columns] if tail else np.s_[..., :rows, :columns]
        whole[name][place] = np.asarray(weight)[..., :rows, :columns]
    return whole


def _feature_count(recording: Recording) -> int:
    """outputs·dim², as `CubicMLP` wants it; with several outputs the published features are only dim²."""
    found, outputs = recording.initial["hidden"].shape[1], recording.outputs
    dim = int(np.ceil(np.sqrt(found / outputs)))
    return outputs * dim * dim


def _padded(array: Array, axis: int, size: int) -> Array:
    """Zeros at the end of an axis, up to `size`: features or rows that have no effect and get no gradient."""
    missing = [(0, 0)] * array.ndim
    missing[axis] = (0, size - array.shape[axis])
    return jnp.pad(array, missing)
