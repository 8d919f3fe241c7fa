"""A model stacked by `eqx.filter_vmap` is trained as the ensemble of its members."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, descend, flow, online
from stepwell.models import AbstractModel, CubicMLP, MergedAttention, MultiHeadAttention, SeparateAttention
from stepwell.objectives import Population, Sampled
from stepwell.tasks import InContextRegression

TASK = InContextRegression(np.diag([0.6, 0.4]), 6)
KEYS = jax.random.split(jax.random.key(0), 3)
BATCH = TASK.sample(16, key=jax.random.key(1))
QUIET: Any = {"progress": False}


def separate(key):
    value, keys = jnp.zeros((2, 1, 3)).at[:, 0, 2].set(0.2), jnp.zeros((2, 1, 3))
    return SeparateAttention(value, keys.at[..., :2].set(0.3 * jax.random.normal(key, (2, 1, 2))), 0.4 * value[..., 1:])


class Gated(AbstractModel):
    """Its annotations say how many axes its weights have."""

    scores: Float[Array, "row column"]
    gate: Float[Array, ""]

    def __init__(self, key):
        self.scores, self.gate = 0.1 * jax.random.normal(key, (2, 2)), jnp.zeros(())

    def __call__(self, tokens):
        x, y = tokens[:, :-1], tokens[:-1, -1:]
        return jnp.tanh(1.0 + self.gate) * (x[:-1] @ self.scores @ x[-1] / y.shape[0]) @ y


class Plain(AbstractModel):
    """Nothing says how many axes."""

    scores: Array

    def __init__(self, key):
        self.scores = 0.1 * jax.random.normal(key, (2, 2))

    def __call__(self, tokens):
        x, y = tokens[:, :-1], tokens[:-1, -1:]
        return (x[:-1] @ self.scores @ x[-1] / y.shape[0]) @ y


TRAININGS = {
    "descend": lambda model, loss: descend(model, loss, rate=0.1, steps=5, **QUIET),
    "adam": lambda model, loss: descend(model, loss, optimizer="adam", rate=0.1, steps=5, **QUIET),
    "online": lambda model, loss: online(model, TASK, batch_size=4, rate=0.1, steps=5, key=KEYS[0], **QUIET),
    "flow": lambda model, loss: flow(model, loss, until=1.0, **QUIET),
}


@pytest.mark.parametrize("train", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize(("make", "loss"), [(separate, Population(TASK)), (Gated, Sampled(BATCH))], ids=["ours", "own"])
def test_it_is_the_ensemble_of_its_members(train, make, loss):
    stacked = train(eqx.filter_vmap(make)(KEYS), loss)
    members = train(Ensemble.of([make(key) for key in KEYS]), loss)
    assert stacked.sizes["run"] == 3
    np.testing.assert_array_equal(stacked["loss"], members["loss"])


def test_where_nothing_says_so_the_remedy_is_named():
    stacked = eqx.filter_vmap(Plain)(KEYS)
    with pytest.raises(InvalidInput, match=r"give Ensemble\(model\)"):
        descend(stacked, Sampled(BATCH), rate=0.1, steps=2, **QUIET)
    run = descend(Ensemble(stacked), Sampled(BATCH), rate=0.1, steps=2, **QUIET)
    alone = descend(Plain(KEYS[1]), Sampled(BATCH), rate=0.1, steps=2, **QUIET)
    assert Ensemble(stacked).size == 3
    np.testing.assert_allclose(run["loss"][1], alone["loss"][0], rtol=1e-12)


def test_what_has_no_common_first_axis_is_no_stack():
    with pytest.raises(InvalidInput, match="no common first axis"):
        Ensemble(Gated(KEYS[0]))


@pytest.mark.parametrize(
    "random",
    [
        partial(SeparateAttention.random, dim=2, heads=2, scale=0.1),
        partial(MergedAttention.random, dim=2, heads=2, scale=0.1),
        partial(CubicMLP.random, dim=2, heads=2, scale=0.1),
        partial(MultiHeadAttention.random, dim=2, outputs=2, heads=2, scale=0.1),
    ],
    ids=lambda random: random.func.__self__.__name__,
)
def test_random_weights_of_ours_are_those_of_each_key(random):
    stacked = eqx.filter_vmap(lambda key: random(key=key))(KEYS)
    alone = Ensemble.of([random(key=key) for key in KEYS]).stacked
    assert eqx.tree_equal(stacked, alone)
