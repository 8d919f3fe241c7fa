r"""Two tasks of your own: inputs from a mixture of Gaussians, and sparse task vectors.

The mixture is a class with its moments in closed form, so that `Population` and the theory of linear attention take it.
The sparse task is one function. Both draw from a random key, by whatever `jax.random` has.
"""

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.dynamics import flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Moments, Population
from stepwell.tasks import (
    AbstractTask,
    Batch,
    ContextLengths,
    InContextRegression,
    PopulationMoments,
    SamplerTask,
    assemble,
    attention_scale,
    check_moments,
)
from stepwell.theory import linear


class MixtureOfGaussians(AbstractTask):
    r"""Inputs around two points: $x = \pm\mu + s\,g$, with a fair coin for each token; $w \sim \mathcal N(0, I)$."""

    context: ContextLengths
    center: tuple[float, ...] = (0.8, 0.0)
    spread: float = 0.5
    outputs: int = 1

    @property
    def dim(self) -> int:
        return len(self.center)

    @property
    def inputs_covariance(self) -> np.ndarray:
        r"""$\Lambda = \mu\mu^\top + s^2 I$."""
        return np.outer(self.center, self.center) + self.spread**2 * np.eye(self.dim)

    def draw(self, sequences: int, *, key) -> Batch:
        coins, inputs, vectors = jax.random.split(key, 3)
        shape = sequences, self.context.tokens, self.dim
        sides = jax.random.rademacher(coins, (*shape[:2], 1), float)
        x = sides * jnp.array(self.center) + self.spread * jax.random.normal(inputs, shape)
        y = jnp.einsum("sni,si->sn", x, jax.random.normal(vectors, (sequences, self.dim)))[..., None]
        return assemble(x, y, y, self.context)

    def closed_form(self, normalization) -> PopulationMoments:
        r"""$M = \Lambda$, $C = (1 + \tfrac1n)\Lambda^2 + \tfrac1n(\mathrm{tr}(\Lambda)\Lambda - 2|\mu|^2\mu\mu^\top)$.

        From $E[xx^\top xx^\top] = 2\Lambda^2 + \mathrm{tr}(\Lambda)\Lambda - 2|\mu|^2\mu\mu^\top$: the last term is
        what inputs of this covariance have less than Gaussian ones.
        """
        lam, mu = self.inputs_covariance, np.array(self.center)
        less = 2 * (mu @ mu) * np.outer(mu, mu)
        cross, second = np.zeros_like(lam), np.zeros_like(lam)
        for n, probability in zip(self.context.counts, self.context.probabilities, strict=True):
            ratio = n * attention_scale(normalization, n)
            cross += probability * ratio * lam
            second += probability * ratio**2 * ((1 + 1 / n) * lam @ lam + (np.trace(lam) * lam - less) / n)
        return PopulationMoments(lam, cross, second, float(np.trace(lam)))


def sparse(n, key):
    """White inputs, and task vectors of which one coordinate in four is not zero."""
    inputs, vectors, coins = jax.random.split(key, 3)
    x = jax.random.normal(inputs, (n, 21, 8))
    w = jax.random.normal(vectors, (n, 8)) * jax.random.bernoulli(coins, 0.25, (n, 8))
    return x, jnp.einsum("sni,si->sn", x, w)


def main() -> None:
    task = MixtureOfGaussians(ContextLengths(4))
    gaps = check_moments(task, key=jax.random.key(0))
    print(f"closed-form moments differ from samples by at most {max(gaps.values()):.1f} standard errors")
    model = SeparateAttention.random(dim=2, heads=2, scale=0.05, key=jax.random.key(1))
    run = flow(model, Population(task), progress=False)
    gaussian = InContextRegression(task.inputs_covariance, 4)
    print(f"levels in theory: {linear.levels(task).round(4).tolist()}")
    print(f"of Gaussian inputs with the same covariance: {linear.levels(gaussian).round(4).tolist()}")
    print(f"loss at the end of training: {float(run.loss[0, -1]):.4f}")

    other = SamplerTask(sparse)
    model = SeparateAttention.random(dim=8, heads=8, scale=0.1, key=jax.random.key(2))
    moments = Moments.of_task(other, 20_000, features="cubic", key=jax.random.key(3), progress=False)
    run = flow(model, moments, until=100.0, progress=False)
    print(f"sparse task vectors: loss {float(run.loss[0, 0]):.3f} → {float(run.loss[0, -1]):.3f}")


if __name__ == "__main__":
    main()
