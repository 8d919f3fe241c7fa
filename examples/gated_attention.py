"""Two models of another paper's kind: linear attention with gates, and with keys of unit length.

Each is `__init__` and `__call__`. The first declares its effective map as well, so that `Population` trains it on
infinitely many sequences; the map of the second is measured by calling it.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell.analysis import effective_map, nearest_fixed_point
from stepwell.dynamics import Ensemble, descend, flow, online
from stepwell.models import AbstractModel, Form
from stepwell.objectives import Population, Sampled
from stepwell.tasks import InContextRegression
from stepwell.theory import linear
from stepwell.trajectory import load, model_at, save


class GatedAttention(AbstractModel):
    """ŷ = Σ_h σ(g_h) (1/N) Σ_n y_n x_nᵀ W_h x_q, so that A = Σ_h σ(g_h) W_h."""

    scores: Float[Array, "head row dim"]
    gate: Float[Array, " head"]
    declared_form: ClassVar[Form | None] = "linear"

    def __init__(self, dim: int, heads: int, *, scale: float = 0.01, key):
        self.scores = scale * jax.random.normal(key, (heads, dim, dim))
        self.gate = jnp.zeros(heads)

    def __call__(self, example):
        x, y = example[:, :-1], example[:-1, -1]
        scores = jnp.einsum("ni,hij,j->hn", x[:-1], self.scores, x[-1]) / y.size
        return (jax.nn.sigmoid(self.gate) @ scores @ y)[None]

    def effective_map(self):
        return jnp.einsum("h,hij->ij", jax.nn.sigmoid(self.gate), self.scores)[None, None]


class NormalizedKeys(AbstractModel):
    """ŷ = Σ_h v_h (1/N) Σ_n y_n k_hnᵀ x_q, k_hn = K_h x_n / |K_h x_n|: linear in the query, and not in the context."""

    keys: Float[Array, "head key_dim dim"]
    value: Float[Array, " head"]

    def __init__(self, dim: int, heads: int, *, scale: float = 0.1, key):
        keys, value = jax.random.split(key)
        self.keys = scale * jax.random.normal(keys, (heads, dim, dim))
        self.value = scale * jax.random.normal(value, (heads,))

    def __call__(self, example):
        x, y = example[:, :-1], example[:-1, -1]
        keys = jnp.einsum("hij,nj->hni", self.keys, x[:-1])
        keys = keys / jnp.sqrt(jnp.sum(keys**2, axis=-1, keepdims=True) + 1e-6)
        return jnp.einsum("h,hni,i,n->", self.value, keys, x[-1], y)[None] / y.size


def main() -> None:
    task = InContextRegression(np.diag([0.6, 0.3]), 20)
    batch = task.sample(500, key=jax.random.key(0))

    gated = GatedAttention(2, heads=2, key=jax.random.key(1))
    run = flow(gated, Population(task), until=100.0, progress=False)  # by its map, compared with its predictions first
    print(f"gated: loss {float(run.loss[0, -1]):.4f}, theory's lowest {linear.minimal_loss(task):.4f}")
    print(f"components learned: {nearest_fixed_point(run, task, gated)['learned'].values[0, [0, -1]].tolist()}")

    normalized = NormalizedKeys(2, heads=2, key=jax.random.key(2))
    seeds = Ensemble.of([NormalizedKeys(2, heads=2, key=key) for key in jax.random.split(jax.random.key(3), 3)])
    flow(normalized, Sampled(batch), until=5.0, progress=False)
    online(seeds, task, batch_size=32, rate=0.1, steps=100, key=jax.random.key(4), progress=False)
    run = descend(normalized, Sampled(batch), rate=0.5, steps=500, progress=False)
    run = load(save(run, "normalized_keys.nc"))
    last = model_at(run, normalized)
    print(f"normalized keys: loss {float(Sampled(batch)(last)):.4f} with weights {list(last.weight_dims)}")
    maps = effective_map(run, normalized, batch=batch)
    print(f"its map, which leaves {float(maps.unexplained[0, -1]):.1%} of predictions: {maps.values[0, -1].round(2)}")
    run.loss[0].plot()[0].figure.savefig("normalized_keys.png")


if __name__ == "__main__":
    main()
