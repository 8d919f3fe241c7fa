"""OwnModel: a model of your own. `python own_model.py` trains it. It needs `__init__`, `__call__` and a builder.

The builder is registered as a kind, so that every verb takes it after `--with own_model.py`, with its fields as flags.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell.analysis import effective_map
from stepwell.experiments import Experiment, Field, register
from stepwell.models import AbstractModel
from stepwell.trajectory import load, save


class OwnModel(AbstractModel):
    """Linear attention with keys of unit length and a gate for each head.

    The prediction is the sum over heads h of sigmoid(gate_h) times the mean over the context of y_n (k_hn · x_q), with
    k_hn = K_h x_n / |K_h x_n|. Arrays are trained; numbers and static fields are not.
    """

    keys: Float[Array, "head key_dim dim"]
    gate: Float[Array, " head"]

    def __init__(self, dim: int, heads: int, gate: float, scale: float, *, key):
        self.keys = scale * jax.random.normal(key, (heads, dim, dim))
        self.gate = jnp.full(heads, gate)

    def __call__(self, example: Float[Array, "tokens width"]) -> Float[Array, " outputs"]:
        """`example` is one sequence: rows (x, y), the last one the query, whose y is 0."""
        x, y = example[:, :-1], example[:-1, -1]
        keys = jnp.einsum("hij,nj->hni", self.keys, x[:-1])
        keys = keys / jnp.sqrt(jnp.sum(keys**2, axis=-1, keepdims=True) + 1e-6)
        return jnp.einsum("h,hni,i,n->", jax.nn.sigmoid(self.gate), keys, x[-1], y)[None] / y.size


@register("model", "own_model", follows="sampled")
def own_model(
    task,
    key,
    *,
    heads: Annotated[int, Field("attention heads", symbol="H", least=1, most=64, slider=(1, 8))] = 2,
    gate: Annotated[float, Field("initial gate, before the sigmoid", least=-10.0, most=10.0)] = 0.0,
    scale: Annotated[float, Field("initialization scale of the keys", above=0.0, most=10.0, log=True)] = 0.1,
):
    """Linear attention with keys of unit length and a gate for each head."""
    return OwnModel(task.dim, heads, gate, scale, key=key)


def main() -> None:
    experiment = Experiment(
        task={"eigenvalues": [0.6, 0.4], "context": 20},
        model={"kind": "own_model", "heads": 2},
        objective={"sequences": 500},
        training={"rate": 0.5, "steps": 500},
    )
    run = load(save(experiment.run(progress=False), "own_model.nc"))
    print(f"loss {float(run.loss[0, 0]):.3f} → {float(run.loss[0, -1]):.3f}")
    task, model, objective = experiment.build()
    maps = effective_map(run, model, batch=objective.batch)
    print(f"effective map at the end, which leaves {float(maps.unexplained[0, -1]):.1%} of the predictions:")
    print(maps.values[0, -1].round(3))
    run.stepwell.plot().savefig("own_model.png")


if __name__ == "__main__":
    main()
