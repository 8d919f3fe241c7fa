"""A task of a function that draws sequences."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer

from stepwell._util import text
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import RandomKey

from ._abstract_task import AbstractTask, assemble
from ._batch import Batch
from ._context_lengths import ContextLengths, as_lengths


class SamplerTask(AbstractTask):
    r"""Any distribution over sequences, given by a function `sample(sequences, key)`.

    Written in JAX it can be used everywhere. A function of NumPy cannot be traced, and so not be used by `online`.

    **Arguments:**

    - `sampler`: called as `sampler(sequences, key=key)`; returns inputs x (sequences, tokens, dim) and labels y
      (sequences, tokens, outputs) or (sequences, tokens), the query last; or x, the labels that are shown, and the true
      ones, if these differ; or a `Batch`.
    - `context`: the context length, or a `ContextLengths` distribution; by default all tokens but the last are context.
    - `moments`: a function from the normalization, such as "1/N", to the `PopulationMoments` in closed form, if they
      are known; `check_moments` compares the two.

    **Example:**

    Inputs from two Gaussians on either side of the origin:

    >>> def sample(sequences, key):
    ...     sides, inputs, vectors = jax.random.split(key, 3)
    ...     x = jax.random.rademacher(sides, (sequences, 11, 1)) + 0.5 * jax.random.normal(inputs, (sequences, 11, 2))
    ...     return x, jnp.einsum("sni,si->sn", x, jax.random.normal(vectors, (sequences, 2)))
    >>> task = sw.tasks.SamplerTask(sample)
    >>> task.dim, task.outputs, task.context.longest
    (2, 1, 10)
    """

    sampler: Callable = eqx.field(static=True)
    context: ContextLengths
    dim: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    closed_form: Callable | None = eqx.field(static=True)

    @checked
    def __init__(
        self,
        sampler: Callable,
        context: int | ContextLengths | None = None,
        *,
        moments: Callable | None = None,
    ):
        drawn = _as_batch(sampler, 2, jax.random.key(0), None if context is None else as_lengths(context))
        self.sampler = sampler
        self.context = drawn.context
        self.dim = drawn.dim
        self.outputs = drawn.outputs
        self.closed_form = moments

    @checked
    def draw(self, sequences: int, *, key: RandomKey) -> Batch:
        """Draw sequences by one call of the sampler."""
        return _as_batch(self.sampler, sequences, key, self.context)


def _as_batch(sampler: Callable, sequences: int, key: RandomKey, context: ContextLengths | None) -> Batch:
    """What the sampler drew, as a batch; `InvalidInput` says what is wrong with it."""
    name = getattr(sampler, "__qualname__", type(sampler).__name__)
    try:
        drawn = sampler(sequences, key=key)
    except Exception as error:
        traced = ", and be written in JAX to be drawn from while training" if isinstance(key, Tracer) else ""
        raise InvalidInput(
            f"{name} could not be called as sample({sequences}, key=key) ({text.error_line(error)}); it must "
            f"take the number of sequences and a key{traced}"
        ) from error
    if isinstance(drawn, Batch):
        return drawn
    parts = [_floats(part) for part in drawn] if isinstance(drawn, tuple | list) else []
    if len(parts) not in (2, 3) or any(part is None for part in parts):
        raise InvalidInput(f"{name} returned {text.shown(drawn)}; it must return inputs and labels, or a Batch")
    x, *labels = parts
    labels = [y[..., None] if y.ndim == 2 else y for y in labels]
    if x.ndim != 3 or any(y.ndim != 3 or y.shape[:2] != x.shape[:2] for y in labels) or x.shape[0] != sequences:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise InvalidInput(
            f"{name} returned arrays of shapes {shapes} for {sequences} sequences; it must return inputs "
            f"({sequences}, tokens, dim) and labels ({sequences}, tokens, outputs)"
        )
    return assemble(x, labels[0], labels[-1], ContextLengths(x.shape[1] - 1) if context is None else context)


def _floats(part: Any) -> Any:
    try:
        return jnp.asarray(part, float)
    except Exception:  # whatever else was returned
        return None
