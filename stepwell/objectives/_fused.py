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
from stepwell._types import Loss
from stepwell.models import AbstractModel, is_attention
from stepwell.tasks import Batch, attention_scale

from ._abstract import AbstractObjective


class FusedSampled(AbstractObjective):
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
    shares: Float[Array, "*run block lanes"]
    target: str = eqx.field(static=True)

    @classmethod
    def of(cls, batch: Batch, model: AbstractModel, share: float, dtype: Any) -> "FusedSampled | None":
        """For these sequences, each of which counts `share`; None where the pass does not apply or cannot be built."""
        lengths = batch.lengths
        if not (is_attention(model) and model.activation == "softmax" and lengths.fixed):
            return None
        if lengths.tokens != batch.tokens.shape[1]:
            return None
        kernel = native.kernel("softmax_loss", "double" if dtype == np.float64 else "float")
        if kernel is None:
            return None
        array = jnp if isinstance(batch.tokens, Tracer) else np
        tokens, labels = array.asarray(batch.tokens), array.asarray(batch.labels)
        # The label of the query is not looked at.
        query = array.where(array.arange(tokens.shape[2]) < batch.dim, tokens[:, -1:], 0.0)
        seen = array.concatenate([tokens[:, :-1], query], axis=1) if model.attends_query else tokens[:, :-1]
        parts = seen, tokens[:, -1, : batch.dim], labels[:, -1], array.full((batch.size,), share)
        found = [blocked(array, part.astype(dtype), kernel) for part in parts]
        return cls(found[0], found[1], found[2], found[3], kernel.target)

    def __call__(self, model: AbstractModel) -> Loss:
        assert is_attention(model)
        scale = attention_scale(model.normalisation, self.tokens.shape[-3] - int(model.attends_query))
        return _loss(
            (model.bilinear(), model.readout() * scale),
            (self.tokens, self.queries, self.targets, self.shares),
            self.target,
        )

    def check(self, model: AbstractModel) -> None:
        """It is made for a model that was checked."""

    def floor(self, model: AbstractModel) -> float | None:
        return None


def blocked(array: Any, values: Any, kernel: native.Kernel) -> Array:
    """(sequences, …) as (block, …, lanes); what the last block lacks is zero, and counts nothing."""
    lanes = kernel.vector_bytes // values.dtype.itemsize
    blocks = -(-values.shape[0] // lanes)
    padding = [(0, blocks * lanes - values.shape[0])] + [(0, 0)] * (values.ndim - 1)
    split = array.pad(values, padding).reshape(blocks, lanes, *values.shape[1:])
    moved = array.moveaxis(split, 1, -1)
    return moved if array is jnp else jax.device_put(np.ascontiguousarray(moved))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _loss(weights: tuple[Array, Array], data: tuple[Array, ...], target: str) -> Loss:
    return _pass(weights, data, target)[0]


def _pass(weights: tuple[Array, Array], data: tuple[Array, ...], target: str) -> Any:
    dtype = data[0].dtype
    results = [jax.ShapeDtypeStruct((), np.float64), *(jax.ShapeDtypeStruct(w.shape, np.float64) for w in weights)]
    call = jax.ffi.ffi_call(target, results, vmap_method="expand_dims")
    return call(*(weight.astype(dtype) for weight in weights), *data)


def _forward(weights: tuple[Array, Array], data: tuple[Array, ...], target: str) -> Any:
    loss, *gradients = _pass(weights, data, target)
    return loss, tuple(gradients)


def _backward(target: str, gradients: Any, cotangent: Array) -> Any:
    return tuple(cotangent * gradient for gradient in gradients), None


_loss.defvjp(_forward, _backward)
