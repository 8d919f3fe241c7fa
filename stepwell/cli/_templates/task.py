"""OwnTask: a task of your own. `python own_task.py` checks it and trains on it; `draw` is all that it needs."""

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.dynamics import flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import (
    AbstractTask,
    Batch,
    ContextLengths,
    InContextRegression,
    PopulationMoments,
    assemble,
    check_moments,
)
from stepwell.theory import linear


class OwnTask(AbstractTask):
    """Regression with white inputs and sparse task vectors: each coordinate is zero with probability 1 - `density`."""

    lengths: ContextLengths
    dim: int = 3
    outputs: int = 1
    density: float = 0.5

    def draw(self, size: int, *, key) -> Batch:
        """Sequences from a random key, by any distribution that `jax.random` has."""
        inputs, vectors, coins = jax.random.split(key, 3)
        x = jax.random.normal(inputs, (size, self.lengths.tokens, self.dim))
        w = jax.random.normal(vectors, (size, self.dim)) * jax.random.bernoulli(coins, self.density, (size, self.dim))
        y = jnp.einsum("sni,si->sn", x, w)[..., None]
        return assemble(x, y, y, self.lengths)

    def moments(self, normalisation="1/N") -> PopulationMoments:
        """Optional: the moments in closed form, which unlock `Population` and the theory.

        They are quadratic in w, so they are those of Gaussian task vectors with the same covariance.
        """
        one = np.eye(self.dim)
        return InContextRegression(one, self.lengths, task_covariance=self.density * one).moments(normalisation)


def main() -> None:
    task = OwnTask(ContextLengths(20))
    gaps = check_moments(task, key=jax.random.key(0))
    print(f"closed-form moments differ from samples by at most {max(gaps.values()):.1f} standard errors")
    model = SeparateAttention.random(dim=task.dim, heads=task.dim, scale=0.1, key=jax.random.key(1))
    run = flow(model, Population(task), progress=False)
    print(f"levels of the loss in theory: {linear.levels(task).round(4).tolist()}")
    print(f"loss at the end of training: {float(run.loss[0, -1]):.4f}")


if __name__ == "__main__":
    main()
