"""`run.stepwell`, models of trajectories, and what tasks and models say about themselves."""

import importlib
import json
import subprocess
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.models import ConvolutionalAttention, CubicMLP, SpectralAttention

TASK = sw.InContextRegression(sw.covariance([1.0, 0.5]), 31)
MODEL = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)


@pytest.fixture(scope="module")
def run():
    return sw.descend(MODEL, sw.Population(TASK), rate=0.05, steps=600, progress=False)


def test_names_at_the_top_are_those_of_the_rooms_and_lazy():
    for name in sw.__all__:
        value = getattr(sw, name)
        room = importlib.import_module(".".join(getattr(value, "__module__", "stepwell").split(".")[:2]))
        assert isinstance(value, ModuleType) or name == "configure" or getattr(room, name, value) is value
    assert set(sw.__all__) <= set(dir(sw)) and "save_run" in dir(sw.store)
    code = "import stepwell, sys; assert not {'jax', 'xarray', 'pandas', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_methods_are_the_functions(run, tmp_path):
    assert run.stepwell.compare(TASK).table.equals(sw.compare(run, TASK).table)
    assert [drop.status for drop in run.stepwell.drops(TASK)] == ["measured"] * 2
    assert len(run.stepwell.drops()) == 2
    assert len(run.stepwell.plot(TASK).axes) == len(run.stepwell.plot().axes) == 1
    assert run.stepwell.plot(TASK).axes[0].texts and not run.stepwell.plot().axes[0].texts
    alone = sw.Experiment(task={"dim": 2}, training={"until": 5.0}).run(progress=False)
    assert alone.stepwell.plot().axes[0].texts and not alone[["loss"]].stepwell.plot().axes[0].texts
    run.stepwell.animate(frames=2).save(tmp_path / "run.gif", writer="pillow")
    assert "SeparateAttention by descend on Population: 601 recorded points to step 600" in repr(run.stepwell)


def test_the_model_of_a_run(run):
    assert float(sw.Population(TASK)(run.stepwell.model())) == pytest.approx(float(run["loss"][0, -1]), rel=1e-12)
    early = run.stepwell.model(at=301)
    np.testing.assert_array_equal(early.query, run["query"].sel(run=0, snapshot=300))
    for wrong in ("end", np.inf):
        with pytest.raises(InvalidInput, match="at is .*it must be a"):
            run.stepwell.model(at=wrong)
    run = run.copy()
    run.attrs = {}
    with pytest.raises(InvalidInput, match="give a template"):
        sw.trajectory.model_at(run)


@pytest.mark.parametrize(
    "model",
    [
        sw.MergedAttention.random(dim=2, heads=2, scale=0.1, key=jax.random.key(0)),
        sw.MultiHeadAttention.random(dim=2, outputs=1, heads=2, scale=0.1, key=jax.random.key(0)),
        CubicMLP.random(dim=2, heads=2, scale=0.1, key=jax.random.key(0)),
        ConvolutionalAttention.from_separate(MODEL),
        SpectralAttention.balanced(np.eye(2), np.eye(2), (2, 2)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_model_comes_back_from_its_trajectory(model):
    weights = {name: np.asarray(value)[None, None] for name, value in model.weights().items()}
    made = sw.trajectory.build(
        axis="step",
        points=np.arange(1),
        curves={"loss": np.ones((1, 1))},
        weight_axis="snapshot",
        weight_points=np.arange(1),
        weights=weights,
        model=model,
        configuration={"model": model},
        outcome="finished",
        message="",
    )
    again = sw.trajectory.model_at(made)
    assert type(again) is type(model) and jax.tree.structure(again) == jax.tree.structure(model)
    for name, value in model.weights().items():
        np.testing.assert_array_equal(again.weights()[name], value)


def test_provenance_has_hashes_and_not_weights(run):
    model = json.loads(run.attrs["configuration"])["model"]
    assert set(model["query"]) == {"shape", "dtype", "sha256"}
    other = MODEL.scaled(2.0)
    assert sw.trajectory.describe(other)["query"]["sha256"] != model["query"]["sha256"]


def test_predict_is_the_model_on_tokens():
    x, w = np.random.default_rng(0).standard_normal((2, 3, 5, 2)), np.array([1.0, -2.0])
    inputs, query = jnp.asarray(x[0]), jnp.asarray(x[1, :, 0])
    labels = inputs @ w
    model = MODEL.scaled(5.0)
    one = model.predict(inputs[0], labels[0], query[0])
    tokens = np.concatenate([np.c_[inputs[0], labels[0]], [[*query[0], 0.0]]])
    assert one.shape == () and float(one) == pytest.approx(float(model(jnp.asarray(tokens))[0]))
    np.testing.assert_allclose(model.predict(inputs, labels, query)[0], one)
    np.testing.assert_allclose(model.predict(inputs, labels[..., None], query)[:1, 0], one)


@pytest.mark.parametrize(
    ("inputs", "labels", "query", "words"),
    [
        ((5, 2), (3,), (2,), "one label for each input"),
        ((5, 2), (5,), (3,), "dim is 2 in inputs"),
        ((5, 3), (5,), (3,), "tokens of width 4"),
        ((5,), (5,), (2,), "inputs has shape|inputs have shape|dim is"),
        ((2, 2, 5, 2), (2, 2, 5), (2, 2, 2), "for one prompt"),
        ((4, 5, 2), (4, 5), (2,), "must agree"),
    ],
)
def test_wrong_shapes_of_a_prompt(inputs, labels, query, words):
    with pytest.raises(InvalidInput, match=words):
        MODEL.predict(jnp.ones(inputs), jnp.ones(labels), jnp.ones(query))


def test_tasks_and_models_say_what_they_are():
    assert repr(TASK) == "InContextRegression(dim=2, context=31, eigenvalues=[1, 0.5], noise_variance=0.0, outputs=1)"
    assert repr(MODEL).startswith("SeparateAttention(value=2 head×1 output×3 token_dim, ")
    for thing in (TASK, MODEL):
        assert thing._repr_html_().startswith("<table>")


def test_schedules_and_optimizers_by_name(run):
    loss = sw.Population(TASK)
    same = sw.descend(MODEL, loss, rate=lambda n: 0.05 + 0.0 * n, steps=600, progress=False)
    np.testing.assert_allclose(same["loss"], run["loss"], rtol=1e-12)
    for name in ("time", "snapshot_time"):
        np.testing.assert_allclose(same[name], run[name], rtol=1e-12)
    decay = optax.cosine_decay_schedule(0.1, 600)
    whole = sw.descend(MODEL, loss, rate=decay, steps=600, record=sw.Record(snapshots=[300]), progress=False)
    assert float(whole["time"][-1]) == pytest.approx(2 * float(np.sum(decay(jnp.arange(600)))), rel=1e-9)
    half = sw.trajectory.model_at(whole, at=300)
    rest = sw.descend(half, loss, rate=decay, first_step=300, steps=300, progress=False)
    np.testing.assert_array_equal(rest["loss"].values[0], whole["loss"].values[0, 300:])
    named = sw.descend(MODEL, loss, rate=0.01, optimizer="adam", steps=20, progress=False)
    given = sw.descend(MODEL, loss, optimizer=optax.adam(0.01), steps=20, progress=False)
    np.testing.assert_array_equal(named["loss"], given["loss"])
    assert "time" not in named.coords and json.loads(named.attrs["configuration"])["optimizer"] == "adam"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "nope", "rate": 0.1}, "no optimizer 'nope'"),
        ({"optimizer": "adam"}, "give its learning rate"),
        ({"rate": lambda: 0.1}, "cannot be called with the number of a step"),
        ({"rate": lambda n: jnp.ones(2)}, "does not return one number"),
    ],
)
def test_rates_that_are_none(options, words):
    with pytest.raises(InvalidInput, match=words):
        sw.descend(MODEL, sw.Population(TASK), steps=2, progress=False, **options)


def test_each_run_of_an_ensemble_has_its_own_time():
    run = sw.descend(sw.Ensemble.of([MODEL, MODEL]), sw.Population(TASK), rate=[0.05, 0.1], steps=4, progress=False)
    np.testing.assert_allclose(run["time"], np.outer([0.1, 0.2], np.arange(5)))
