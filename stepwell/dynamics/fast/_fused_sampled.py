"""The loss of softmax attention over given sequences, with its gradient, in one native pass."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from stepwell import native
from stepwell._util.types import Loss
from stepwell.models import AbstractModel, is_attention
from stepwell.objectives import AbstractObjective, Sampled
from stepwell.tasks import Batch, attention_scale

from ._registry import gradient_form
from ._shared import AbstractForm, blocked


class FusedSampled(AbstractForm):
    r"""What `Sampled` computes, for softmax attention over contexts of one length; with a first gradient only, and
    that in the weights.

    $L = \sum_s c_s \|\hat y_s - y_s\|^2$, $\hat y = \sum_h U_h m_h$, $m_h = \sum_t p_{ht} z_t$, $p_h =
    \mathrm{softmax}_t\, z_t^\top W_h x$. With $e = 2c(\hat y - y)$ and $g_h = U_h^\top e$:

    $\partial U_h = \sum_s e\, m_h^\top, \quad \partial W_h = \sum_s \sum_t p_{ht} (g_h^\top z_t - g_h^\top m_h)\,
    z_t x^\top$

    One pass over a sequence gives all of this, while its tokens are in cache, and makes each exponential once.
    Sequences are stored in blocks of as many as a vector of the processor holds, innermost in memory.
    """

    tokens: Float[Array, "*run block tokens width lanes"]
    queries: Float[Array, "*run block dim lanes"]
    targets: Float[Array, "*run block outputs lanes"]
    factors: Float[Array, "*run block lanes"]
    r"""$c_s$."""
    target: str = eqx.field(static=True)

    @classmethod
    def of(cls, objective: Sampled, model: AbstractModel) -> "FusedSampled | None":
        """Return this form of `objective` for models like `model`; None where it does not apply or is not built."""
        batch, dtype = objective.batch, np.dtype(objective.precision)
        if type(objective) is not Sampled or not isinstance(batch, Batch):
            return None
        weights = model.weights().values()  # or their shapes and types alone
        if any(values.dtype != jnp.float64 for values in (batch.tokens, *weights)):
            return None  # what is given in another precision is not to be changed by chance
        lengths = batch.context
        if not (is_attention(model) and model.activation == "softmax" and lengths.fixed):
            return None
        if lengths.tokens != batch.tokens.shape[1]:
            return None
        kernel = native.kernel("softmax_loss", "double" if dtype == np.float64 else "float")
        if kernel is None:
            return None
        array = jnp if isinstance(batch.tokens, Tracer) else np
        tokens, labels = array.asarray(batch.tokens), array.asarray(batch.labels)
        # The label of the query is not read.
        query = array.where(array.arange(tokens.shape[2]) < batch.dim, tokens[:, -1:], 0.0)
        attended = array.concatenate([tokens[:, :-1], query], axis=1) if model.attends_query else tokens[:, :-1]
        outputs = batch.outputs if objective.reduce == "mean" else 1
        factors = array.full((batch.size,), 1 / (batch.size * outputs))
        parts = attended, tokens[:, -1, : batch.dim], labels[:, -1], factors
        return cls(*(blocked(array, part.astype(dtype), kernel) for part in parts), target=kernel.target)

    def __call__(self, model: AbstractModel) -> Loss:
        assert is_attention(model)
        scale = attention_scale(model.normalization, self.tokens.shape[-3] - int(model.attends_query))
        data = self.tokens, self.queries, self.targets, self.factors
        return _loss((model.bilinear(), model.readout() * scale), data, self.target)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _loss(weights: tuple[Array, Array], data: tuple[Array, ...], target: str) -> Loss:
    return _forward(weights, data, target)[0]


def _forward(weights: tuple[Array, Array], data: tuple[Array, ...], target: str) -> Any:
    dtype = data[0].dtype
    results = [jax.ShapeDtypeStruct((), np.float64), *(jax.ShapeDtypeStruct(w.shape, np.float64) for w in weights)]
    call = jax.ffi.ffi_call(target, results, vmap_method="expand_dims")
    loss, *gradients = call(*(weight.astype(dtype) for weight in weights), *data)
    return loss, tuple(gradients)


def _backward(target: str, gradients: Any, cotangent: Array) -> Any:
    return tuple(cotangent * gradient for gradient in gradients), None


_loss.defvjp(_forward, _backward)


@gradient_form.register
def _(objective: Sampled, model: AbstractModel) -> AbstractObjective:
    return FusedSampled.of(objective, model) or objective
