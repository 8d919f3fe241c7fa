"""OwnModel: a model of your own. `python own_model.py` trains it; `__init__` and `__call__` are all that it needs."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell.dynamics import descend
from stepwell.models import AbstractModel
from stepwell.objectives import Sampled
from stepwell.probes import effective_map
from stepwell.tasks import InContextRegression
from stepwell.trajectory import load, save


class OwnModel(AbstractModel):
    """Linear attention with keys of unit length and a gate for each head.

    The answer is the sum over heads h of sigmoid(gate_h) times the mean over the context of y_n (k_hn · x_q), with
    k_hn = K_h x_n / |K_h x_n|. Arrays are trained; numbers and static fields are not.
    """

    keys: Float[Array, "head key_dim dim"]
    gate: Float[Array, " head"]

    def __init__(self, dim: int, heads: int, *, scale: float = 0.1, key):
        self.keys = scale * jax.random.normal(key, (heads, dim, dim))
        self.gate = jnp.zeros(heads)

    def __call__(self, example: Float[Array, "tokens width"]) -> Float[Array, " outputs"]:
        """`example` is one sequence: rows (x, y), the last one the query, whose y is 0."""
        x, y = example[:, :-1], example[:-1, -1]
        keys = jnp.einsum("hij,nj->hni", self.keys, x[:-1])
        keys = keys / jnp.sqrt(jnp.sum(keys**2, axis=-1, keepdims=True) + 1e-6)
        return jnp.einsum("h,hni,i,n->", jax.nn.sigmoid(self.gate), keys, x[-1], y)[None] / y.size


def main() -> None:
    task_key, weight_key = jax.random.split(jax.random.key(0))
    task = InContextRegression(np.diag([0.6, 0.4]), 20)
    batch = task.sample(500, key=task_key)
    model = OwnModel(2, heads=2, key=weight_key)

    run = descend(model, Sampled(batch), rate=0.5, steps=500, progress=False)  # or flow, or online
    print(f"loss {float(run.loss[0, 0]):.3f} → {float(run.loss[0, -1]):.3f}; weights {list(model.weight_dims)}")
    run = load(save(run, "own_model.nc"))
    maps = effective_map(run, model, batch=batch)
    print(f"effective map at the end, which leaves {float(maps.unexplained[0, -1]):.1%} of the answers:")
    print(maps.values[0, -1].round(3))
    run.stepwell.plot().savefig("own_model.png")


if __name__ == "__main__":
    main()
