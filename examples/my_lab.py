"""A model and a task of your own: `stepwell train --with my_lab.py --task sparse --model gated --gate 0.2`."""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.experiments import Field, register
from stepwell.models import SeparateAttention
from stepwell.tasks import AbstractTask, ContextLengths, InContextRegression, assemble

Count = Annotated[int, Field("a number of them", least=1, most=64, slider=(1, 8))]
Part = Annotated[float, Field("a part of one", above=0.0, most=1.0, slider=(0.05, 1.0))]


class Gated(SeparateAttention):
    declared_form = "separate"  # predictions are made of value, key and query as there: the theory takes it


@register("model", "gated", theory="separate", follows="population")
def gated(task, key, *, heads: Count = 4, gate: Part = 0.5, scale: Part = 0.05):
    """Attention whose values begin behind a gate: they are multiplied by it."""
    model = Gated.random(dim=task.dim, heads=heads, scale=scale, key=key)
    return model.with_weights(model.weights() | {"value": gate * model.value})


class Sparse(AbstractTask):
    """Inputs of variances 1, 1/2, 1/3 …; a coordinate of a task vector is zero with probability 1 - density."""

    context: ContextLengths
    dim: int
    density: float
    outputs: int = 1

    def draw(self, sequences, *, key):
        inputs, vectors, coins = jax.random.split(key, 3)
        x = jax.random.normal(inputs, (sequences, self.context.tokens, self.dim))
        x = x / jnp.sqrt(jnp.arange(1, self.dim + 1))
        w = jax.random.normal(vectors, (sequences, self.dim))
        w = w * jax.random.bernoulli(coins, self.density, w.shape)
        y = jnp.einsum("sni,si->sn", x, w)[..., None]
        return assemble(x, y, y, self.context)

    def closed_form(self, normalization):  # in closed form: for the objective population, and for the theory
        covariance, tasks = np.diag(1 / np.arange(1, self.dim + 1)), self.density * np.eye(self.dim)
        return InContextRegression(covariance, self.context, task_covariance=tasks).moments(normalization)


@register("task", "sparse", follows="gated")
def sparse(*, dim: Count = 3, density: Part = 0.5, context: Annotated[int, Field("context pairs", least=1)] = 20):
    """Regression with sparse task vectors."""
    return Sparse(ContextLengths(context), dim=dim, density=density)
