"""The loss over given sequences, by running the model on each."""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from stepwell import _check
from stepwell._memory import require_memory
from stepwell._types import Loss, Precision
from stepwell.models import AbstractAttention, AbstractModel
from stepwell.tasks import Batch, FeatureBatch

from ._abstract import AbstractObjective, require
from ._fused import FusedSampled

Reduce = Literal["mean", "sum"]
"""How the squared errors of several outputs become one: their mean, or their sum."""


class Sampled(AbstractObjective):
    r"""$L = \sum_n \pi_n \tfrac1P \sum_p \tfrac1O \|y_{p,n} - \hat y_{p,n}\|^2$ over P sequences and context lengths n.

    For any model; gradients go through every token. `batch` is a `Batch` of tokens for attention, or a `FeatureBatch`
    for models of cubic features. With `reduce="sum"` outputs are added up instead of averaged (no 1/O).

    `precision` is that in which a native pass, of softmax attention, takes a sequence; sums over sequences are in
    float64 always. With "float32" it takes half the time, and the loss and its gradient keep six digits.
    """

    batch: Batch | FeatureBatch
    reduce: Reduce = eqx.field(static=True, default="mean")
    precision: Precision = eqx.field(static=True, default="float64")

    def __call__(self, model: AbstractModel) -> Loss:
        mean = self._mean(model)
        return mean if self.reduce == "mean" else mean * self.batch.labels.shape[-1]

    def _mean(self, model: AbstractModel) -> Loss:
        if isinstance(self.batch, FeatureBatch):
            answers = jax.vmap(model)(self.batch.features)
            return jnp.sum(self.batch.weights * jnp.mean((self.batch.labels - answers) ** 2, axis=-1))
        lengths = self.batch.lengths
        if lengths.fixed and lengths.tokens == self.batch.tokens.shape[1]:
            answers = jax.vmap(model)(self.batch.tokens)
            return jnp.mean((self.batch.labels[:, -1] - answers) ** 2)
        assert isinstance(model, AbstractAttention)
        counts = jnp.array(lengths.counts)
        answers = jax.vmap(lambda tokens: jax.vmap(lambda n: model(tokens, n))(counts))(self.batch.tokens)
        errors = jnp.mean((self.batch.labels[:, counts] - answers) ** 2, axis=(0, 2))
        return jnp.array(lengths.probabilities) @ errors

    def for_descent(self, model: AbstractModel) -> AbstractObjective:
        if isinstance(self.batch, FeatureBatch):
            return self
        weights = [getattr(model, name) for name in model.weight_dims]  # or their shapes and types alone
        if any(array.dtype != jnp.float64 for array in (self.batch.tokens, *weights)):
            return self  # what is given in another precision is not to be changed by chance
        outputs = self.batch.outputs if self.reduce == "mean" else 1
        return FusedSampled.of(self.batch, model, 1 / (self.batch.size * outputs), np.dtype(self.precision)) or self

    def check(self, model: AbstractModel) -> None:
        _check.one_of("reduce", self.reduce, get_args(Reduce))
        _check.one_of("precision", self.precision, get_args(Precision))
        if isinstance(self.batch, FeatureBatch):
            require(
                not isinstance(model, AbstractAttention),
                f"{type(model).__name__} reads tokens, the data are feature vectors; give the Batch itself",
            )
        else:
            require(
                isinstance(model, AbstractAttention),
                f"{type(model).__name__} reads cubic features, the data are tokens; give batch.cubic_features()",
            )
            assert isinstance(model, AbstractAttention)
            tokens, lengths = self.batch.tokens, len(self.batch.lengths.counts)
            heads = model.readout().shape[0]
            require_memory(
                3 * 8 * lengths * tokens.shape[0] * tokens.shape[1] * (tokens.shape[2] + 2 * heads),
                what=f"a gradient through {tokens.shape[0]} sequences of {tokens.shape[1]} tokens and {heads} heads",
                instead="take fewer sequences, train online, or use Moments where attention is linear",
            )
            outputs, dim = model.shape
            require(
                (outputs, dim) == (self.batch.outputs, self.batch.dim),
                f"the model has {outputs} outputs and dimension {dim}, the data {self.batch.outputs} and "
                f"{self.batch.dim}; they must agree",
            )

    def floor(self, model: AbstractModel) -> float | None:
        return None
