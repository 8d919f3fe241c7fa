"""The model, the data and the whole weight matrices of a recording, as the rest of the package has them."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from stepwell.models import AbstractCubicModel, AbstractModel
from stepwell.tasks import Batch, ContextLengths, FeatureBatch

from ._recording import Examples, Recording


def model_of(recording: Recording) -> AbstractCubicModel:
    """The model at its initial weights. Parts that never reach a prediction are left out, see `whole_weights`."""
    return recording.kind.model.from_recording(
        {name: jnp.asarray(value) for name, value in recording.initial.items()},
        outputs=recording.outputs,
        activation=recording.activation,
        normalization="1/tokens" if recording.vary_len else "none",
    )


def data_of(recording: Recording, model: AbstractCubicModel, examples: Examples, *, test: bool) -> Batch | FeatureBatch:
    """A data set. Only training varies the context length: a test is on whole sequences, as published.

    With several outputs the published features are fewer than those of the model: the rest are zero, so that the
    weights on them have no effect and get no gradient.
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
