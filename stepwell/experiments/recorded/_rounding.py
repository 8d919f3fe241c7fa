"""Gradient descent with weights kept in float32: what rounding alone does to a run.

Where rate times sharpness exceeds 2, every step multiplies a deviation. Shortly before, near 1, the same direction was
damped down to the rounding error, so that is what grows: runs in float32 and in float64 diverge from each other, though
both are correct.
"""

from typing import Any

import jax.numpy as jnp
import optax


def rounded_descent(rate: float) -> optax.GradientTransformation:
    r"""$W \leftarrow \mathrm{float32}(W - \eta\, \partial L/\partial W)$, everything else in float64."""

    def init(params: Any) -> Any:
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moved = (params - rate * updates).astype(jnp.float32).astype(params.dtype)
        return moved - params, state

    return optax.GradientTransformation(init, update)
