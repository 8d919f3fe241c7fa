"""Moments of softmax weights over stored Gaussians, with a gradient that makes no exponential twice."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_vjp
def softmax_sums(
    directions: Float[Array, "head task sequences"],
    normals: Float[Array, "token task sequences"],
    largest: Float[Array, "task sequences"],
) -> tuple[Float[Array, "head task sequences"], Float[Array, "head head sequences"]]:
    r"""$f_i^h = \sum_l p_l^h z_{l,i}$ and $g^{hk} = \sum_l p_l^h p_l^k$.

    $p^h = \mathrm{softmax}_l \sum_i w_i^h z_{l,i}$; `directions` is w, `normals` z and `largest` $\max_l |z_{l,i}|$,
    which bounds the scores. Sequences come last, where arithmetic is vectorized. Only w has a gradient.
    """
    return _forward(directions, normals, largest)[0]


# Sums over heads and tasks are written out, and those over tokens are loops: reductions are several times slower.


def _forward(directions: Array, normals: Array, largest: Array) -> tuple[Any, Any]:
    bound = _combined(jnp.abs(directions), lambda i: largest[i])
    exponentials = jnp.exp(_combined(directions, lambda i: normals[:, i, None]) - bound)
    total = _contract(exponentials, jnp.ones_like(normals[:, :1]))
    first = _contract(exponentials, normals) / total
    second = _contract(exponentials, _again(exponentials)) / (total * total[:, 0])
    return (first, second), (normals, largest, total, first, second, exponentials)


def _backward(kept: Any, cotangents: Any) -> tuple[Array, Array, Array]:
    r"""$\bar s_l^h = p_l^h (\bar p_l^h - \sum_m p_m^h \bar p_m^h)$, $\bar p_l^h = \sum_i \bar f_i^h z_{l,i} + \sum_k
    (\bar g^{hk} + \bar g^{kh}) p_l^k$: the sum over m needs no tokens, only f and g."""
    normals, largest, total, first, second, exponentials = kept
    df, dg = cotangents
    dg = dg + dg.swapaxes(0, 1)
    mean = (_combined(df, lambda i: first[:, i]) + _combined(dg, lambda k: second[:, k])) / total[:, 0]
    df, dg = df / total, dg / (total * total[:, 0])
    others = _again(exponentials)

    def score(token):  # for all tokens at once, df and dg would be computed anew for each of them
        slope = _combined(df, lambda i: normals[token, i]) + _combined(dg, lambda k: others[token, k])
        return exponentials[token] * (slope - mean)

    scores = jax.lax.map(score, jnp.arange(normals.shape[0]))
    return _contract(scores, normals), jnp.zeros_like(normals), jnp.zeros_like(largest)


softmax_sums.defvjp(_forward, _backward)


def _combined(coefficients: Float[Array, "head part sequences"], part: Callable[[int], Array]) -> Array:
    """The sum of parts with these coefficients."""
    return sum(coefficients[:, k] * part(k) for k in range(coefficients.shape[1]))  # pyright: ignore


def _contract(
    left: Float[Array, "token left sequences"], right: Float[Array, "token right sequences"]
) -> Float[Array, "left right sequences"]:
    """The sum over tokens."""

    def add(token, total):
        return total + left[token][:, None] * right[token]

    shape = (left.shape[1], right.shape[1], left.shape[2])
    return jax.lax.fori_loop(0, left.shape[0], add, jnp.zeros(shape, left.dtype))


def _again(array: Array) -> Array:
    """The same array, but the compiler does not know: what it reads once to use twice, it does not vectorize."""
    return jax.lax.optimization_barrier(array)
