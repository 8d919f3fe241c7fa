"""Tasks that JAX cannot trace, drawn from by calls back to Python."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from stepwell._util.types import RandomKey
from stepwell.tasks import AbstractTask, Batch, ContextLengths


class _Held:
    """A task as a constant of compiled programs: equal to itself alone."""

    def __init__(self, task: AbstractTask):
        self.task = task


class OnHost(AbstractTask):
    """The same task: inside of a compiled program `draw` leaves it for Python, with the key as a value.

    This costs a fraction of a millisecond a call beside what the task itself takes.
    """

    context: ContextLengths
    dim: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    tokens: int = eqx.field(static=True)
    held: _Held = eqx.field(static=True)

    @classmethod
    def of(cls, task: AbstractTask, drawn: Batch) -> "OnHost":
        """The task, which has `drawn` some sequences."""
        return cls(task.context, task.dim, task.outputs, drawn.tokens.shape[1], _Held(task))

    def draw(self, sequences: int, *, key: RandomKey) -> Batch:
        kind = jax.random.key_impl(key)

        def on_host(data: Any) -> tuple[np.ndarray, np.ndarray]:
            drawn = self.held.task.draw(sequences, key=jax.random.wrap_key_data(data, impl=kind))
            return np.asarray(drawn.tokens, float), np.asarray(drawn.labels, float)

        shapes = tuple(
            jax.ShapeDtypeStruct((sequences, self.tokens, width), float)
            for width in (self.dim + self.outputs, self.outputs)
        )
        tokens, labels = jax.pure_callback(on_host, shapes, jax.random.key_data(key), vmap_method="sequential")
        return Batch(tokens, labels, self.context)
