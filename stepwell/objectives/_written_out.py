"""The population loss of a few pairs in a few dimensions, with its gradient, in sums that are written out."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._types import Loss
from stepwell.models import AbstractModel, SeparateAttention

from ._abstract import AbstractObjective

_TERMS = 64
"""Pairs times dimension at the most: beyond, products of matrices are faster, and what is written out gets long."""


class WrittenOut(AbstractObjective):
    r"""What `Population` computes for separate attention of one output; with a first gradient only.

    $L = c - 2 \langle A, M\Lambda \rangle + \langle A, C A \Lambda \rangle$, $A = \sum_a v_a k_a q_a^\top$. With
    $S = 2 (C A \Lambda - M\Lambda)$, $\partial k_a = v_a S q_a$, $\partial q_a = v_a S^\top k_a$, $\partial v_a =
    k_a^\top S q_a$.

    No sum is a product of matrices: they are too small for that, and in an ensemble each run would have its own, which
    the compiler makes one after another. Here the runs are the last axis of every array, and are summed together.
    """

    input: Float[Array, "*any dim"]
    drive: Float[Array, "*other dim"]
    second: Float[Array, "*third dim"]
    label_power: Float[Array, "*run"]

    def __call__(self, model: AbstractModel) -> Loss:
        assert isinstance(model, SeparateAttention)
        return self.label_power + _loss((model.value, model.key, model.query), (self.input, self.drive, self.second))

    def check(self, model: AbstractModel) -> None:
        """It is made for a model that was checked."""

    def floor(self, model: AbstractModel) -> float | None:
        return None


def is_small(model: AbstractModel) -> bool:
    """Whether the loss of such a model is better written out."""
    if not isinstance(model, SeparateAttention):
        return False
    heads, rank, _ = model.key.shape
    return model.value.shape[1] == 1 and heads * rank * model.dim <= _TERMS


@jax.custom_vjp
def _loss(weights: Any, moments: Any) -> Loss:
    return _pass(weights, moments)[0]


def _forward(weights: Any, moments: Any) -> Any:
    return _pass(weights, moments)


def _backward(gradient: Any, cotangent: Array) -> Any:
    return tuple(cotangent * part for part in gradient), None


_loss.defvjp(_forward, _backward)


@jax.custom_batching.custom_vmap
def _pass(weights: Any, moments: Any) -> Any:
    """The loss, without its constant, and its gradient, of one run."""
    found = _runs_last(*jax.tree.map(lambda part: part[..., None], (weights, moments)))
    return jax.tree.map(lambda part: part[..., 0], found)


@_pass.def_vmap
def _pass_of_runs(runs: int, batched: Any, weights: Any, moments: Any) -> Any:
    """Where a part is the same for all runs, its last axis has length one."""
    last = jax.tree.map(_moved_last, (weights, moments), tuple(batched))
    loss, gradient = jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0), _runs_last(*last))
    return (loss, gradient), (True, (True, True, True))


def _moved_last(part: Array, own: bool) -> Array:
    return jnp.moveaxis(part, 0, -1) if own else part[..., None]


def _runs_last(weights: Any, moments: Any) -> Any:
    (value, key, query), (lam, drive, second) = weights, moments
    heads, rank, dim, _ = query.shape
    values = jnp.repeat(value[:, 0, dim], rank, axis=0)
    keys, queries = (part[:, :, :dim].reshape(heads * rank, dim, -1) for part in (key, query))
    whole = _product((values[:, None] * keys).swapaxes(0, 1), queries)
    moved = second[:, None] * whole if second.ndim == 2 else _product(second, whole)
    moved = moved * lam if lam.ndim == 2 else _product(moved, lam)
    wanted = jnp.eye(dim)[..., None] * drive if drive.ndim == 2 else drive
    slope = 2 * (moved - wanted)
    on_keys, on_queries = _product(queries, slope.swapaxes(0, 1)), _product(keys, slope)
    on_values = _added(keys[:, i] * on_keys[:, i] for i in range(dim)).reshape(heads, rank, -1)
    gradient = (
        jnp.pad(jnp.sum(on_values, axis=1)[:, None, None], ((0, 0), (0, 0), (dim, 0), (0, 0))),
        jnp.pad((values[:, None] * on_keys).reshape(heads, rank, dim, -1), ((0, 0), (0, 0), (0, 1), (0, 0))),
        (values[:, None] * on_queries).reshape(heads, rank, dim, -1),
    )
    return jnp.sum(whole * (moved - 2 * wanted), axis=(0, 1)), gradient


def _product(left: Float[Array, "rows middle _"], right: Float[Array, "middle columns _"]) -> Array:
    """Of two matrices, for each run; one that is the same for all has one."""
    return _added(left[:, k, None] * right[k] for k in range(left.shape[1]))


def _added(terms: Any) -> Array:
    return sum(terms)  # pyright: ignore
