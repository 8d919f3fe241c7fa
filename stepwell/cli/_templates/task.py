"""OwnTask: a task of your own. `python own_task.py` checks it and trains on it. It needs `draw` and a builder.

The builder is registered as a kind, so that every verb takes it after `--with own_task.py`, with its fields as flags.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.experiments import Experiment, Field, register
from stepwell.tasks import (
    AbstractTask,
    Batch,
    ContextLengths,
    InContextRegression,
    PopulationMoments,
    assemble,
    check_moments,
)


class OwnTask(AbstractTask):
    """Regression with white inputs and sparse task vectors: each coordinate is zero with probability 1 - `density`."""

    context: ContextLengths
    dim: int
    density: float
    outputs: int = 1

    def draw(self, sequences: int, *, key) -> Batch:
        """Sequences from a random key, by any distribution that `jax.random` has."""
        inputs, vectors, coins = jax.random.split(key, 3)
        x = jax.random.normal(inputs, (sequences, self.context.tokens, self.dim))
        w = jax.random.normal(vectors, (sequences, self.dim))
        w = w * jax.random.bernoulli(coins, self.density, w.shape)
        y = jnp.einsum("sni,si->sn", x, w)[..., None]
        return assemble(x, y, y, self.context)

    def closed_form(self, normalization) -> PopulationMoments:
        """Optional: the moments in closed form, for the objective population and for the theory.

        They are quadratic in w, so they are those of Gaussian task vectors with the same covariance.
        """
        one = np.eye(self.dim)
        return InContextRegression(one, self.context, task_covariance=self.density * one).moments(normalization)


@register("task", "own_task", closed_form=True)  # without the method closed_form, leave this out, too
def own_task(
    *,
    dim: Annotated[int, Field("dimension of the inputs", symbol="D", least=1, most=64, slider=(1, 8))] = 3,
    density: Annotated[float, Field("fraction of nonzero task coordinates", above=0.0, most=1.0)] = 0.5,
    context: Annotated[int, Field("context pairs", symbol="N", least=1, most=10_000, slider=(1, 100))] = 20,
):
    """Regression with white inputs and sparse task vectors."""
    return OwnTask(ContextLengths(context), dim=dim, density=density)


def main() -> None:
    experiment = Experiment(task="own_task", model={"heads": 3, "scale": 0.1})
    gaps = check_moments(experiment.build().task, key=jax.random.key(0))
    print(f"closed-form moments differ from samples by at most {max(gaps.values()):.1f} standard errors")
    run, levels = experiment.run(progress=False), experiment.predict().levels
    print(f"levels of the loss in theory: {[round(level.loss, 4) for level in levels]}")
    print(f"loss at the end of training: {float(run.loss[0, -1]):.4f}")


if __name__ == "__main__":
    main()
