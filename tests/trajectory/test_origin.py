"""How initial weights were drawn: it is recorded, it makes the same weights, and it is not claimed of others."""

import copy
import dataclasses
import gc
import json
import pickle
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell as sw
from stepwell.models import ConvolutionalAttention, CubicMLP, MultiHeadAttention, SpectralAttention, decomposable
from stepwell.tasks import MultiTaskRegression
from stepwell.trajectory import describe

KEY = jax.random.key(3)
SIZES = {"dim": 2, "heads": 2, "scale": 0.1, "key": KEY}
TASK = MultiTaskRegression((2, 3), context=10)


def _spectral() -> SpectralAttention:
    return SpectralAttention.balanced(np.full((2, 2), 0.2), np.full((2, 2), 0.3), (2, 3))


MADE = {
    "merged": lambda: sw.MergedAttention.random(**SIZES, label_blocks="random", activation="softmax"),
    "separate": lambda: sw.SeparateAttention.random(**SIZES, scheme="stacked"),
    "mlp": lambda: CubicMLP.random(**SIZES),
    "multi-head": lambda: MultiHeadAttention.random(dim=2, outputs=2, heads=2, scale=0.1, key=KEY),
    "aligned": lambda: sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=[0.1, 0.2]),
    "along a matrix": lambda: sw.MergedAttention.aligned(jnp.eye(2), heads=2, scale=0.1),
    "eigenvalues": _spectral,
}


@pytest.mark.parametrize("name", MADE)
def test_the_recorded_call_makes_the_same_weights(name: str):
    model = MADE[name]()
    about = json.loads(json.dumps(describe(model)))
    call = about["made_by"].pop("call")
    if "key" in about["made_by"]:
        about["made_by"]["key"] = jax.random.wrap_key_data(jnp.asarray(about["made_by"]["key"], jnp.uint32))
    again = describe(getattr(type(model), call)(**about["made_by"]))
    assert {weight: again[weight] for weight in model.weight_dims} == {w: about[w] for w in model.weight_dims}


def test_what_is_made_of_another_model_says_of_which():
    model = MADE["separate"]()
    about = describe(model.balanced().scaled(2.0))["made_by"]
    assert (about["call"], about["factor"], about["of"]["call"]) == ("scaled", 2.0, "balanced")
    assert about["of"]["of"] == describe(model)["made_by"]
    for made in (
        CubicMLP.from_merged(MADE["merged"]()),
        ConvolutionalAttention.from_separate(sw.SeparateAttention.random(**SIZES)),
        decomposable(_spectral(), TASK, key=KEY),
    ):
        (given,) = [part for part in describe(made)["made_by"].values() if isinstance(part, dict) and "made_by" in part]
        assert given["made_by"]["call"] in ("random", "balanced")


@pytest.mark.parametrize(
    "change",
    [
        lambda model: eqx.tree_at(lambda m: m.value, model, 2 * model.value),
        lambda model: jax.tree.map(lambda leaf: leaf, model),
        lambda model: model.with_weights(model.weights()),
        lambda model: eqx.tree_at(lambda m: m.value, model, 2 * model.value).scaled(2.0),
        lambda model: pickle.loads(pickle.dumps(model)),
        copy.copy,
        copy.deepcopy,
    ],
)
def test_other_weights_have_no_origin(change):
    assert "made_by" not in describe(change(MADE["separate"]()))


def test_an_ensemble_says_once_what_its_members_share():
    keys = jax.random.split(KEY, 3)
    ensemble = sw.Ensemble.of([sw.SeparateAttention.random(**SIZES | {"key": key}) for key in keys])
    about = describe(ensemble)["stacked"]["made_by"]
    assert about["members"]["scale"] == 0.1 and "key" not in about["members"]
    assert about["for_each"] == {"key": jax.random.key_data(keys).tolist()}
    foreign = sw.SeparateAttention.random(**SIZES)
    mixed = sw.Ensemble.of([foreign, foreign.with_weights(foreign.weights())])
    assert "made_by" not in describe(mixed)["stacked"]


def test_a_record_is_no_part_of_the_model():
    """Equality, hash, leaves, text and compiled programs do not know of it; it goes with the model."""
    traces = []

    @eqx.filter_jit
    def total(model):
        traces.append(model)
        return jnp.sum(model.value)

    model = MADE["separate"]()
    plain = model.with_weights(model.weights())
    assert total(model) == total(plain) and len(traces) == 1 and eqx.tree_equal(model, plain)
    bare = sw.SeparateAttention(model.value, model.key, model.query)
    for other in (plain, bare):
        assert jax.tree.structure(model) == jax.tree.structure(other) and repr(model) == repr(other)
        assert hash(jax.tree.structure(model)) == hash(jax.tree.structure(other))
        assert vars(model).keys() == vars(other).keys() == {field.name for field in dataclasses.fields(other)}
    alive = weakref.ref(model)
    traces.clear()
    del model
    gc.collect()
    assert alive() is None


def test_a_run_from_changed_weights_in_a_file_claims_no_origin(tmp_path):
    """The recorded weights are compared with the recorded hashes."""
    objective = sw.Population(sw.InContextRegression(sw.covariance([1.0, 0.5]), 31))
    model = sw.SeparateAttention.random(**SIZES)
    run = sw.descend(model, objective, rate=0.05, steps=3, progress=False)
    assert "made_by" in sw.trajectory.model_settings(sw.rerun(run, progress=False))
    changed = run.assign(query=run["query"] * 2)
    assert "made_by" not in sw.trajectory.model_settings(sw.rerun(changed, progress=False))
