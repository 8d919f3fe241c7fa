"""The native pass against automatic differentiation through every token."""

import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.dynamics import Ensemble, descend, online
from stepwell.dynamics.fast import FusedSampled, gradient_form
from stepwell.models import MergedAttention, MultiHeadAttention, SeparateAttention
from stepwell.objectives import Sampled
from stepwell.tasks import Batch, ContextLengths, InContextRegression


def both(objective: Sampled, model):
    """(loss, gradient) by the plain way and by the native pass."""
    fused = gradient_form(objective, model)
    assert isinstance(fused, FusedSampled)
    return [eqx.filter_jit(eqx.filter_value_and_grad(each))(model) for each in (objective, fused)]


def assert_same(found, *, rtol: float):
    (loss, gradient), (fused_loss, fused_gradient) = found
    np.testing.assert_allclose(fused_loss, loss, rtol=rtol)
    # Where the softmax is nearly hard, the gradient of a score is a small difference: rounding is that of its terms.
    scale = max(np.abs(value).max() for value in gradient.weights().values())
    for name, value in gradient.weights().items():
        np.testing.assert_allclose(getattr(fused_gradient, name), value, atol=rtol * scale, rtol=0, err_msg=name)


@settings(max_examples=12, deadline=None)
@given(
    dim=st.integers(1, 8),
    outputs=st.integers(1, 3),
    heads=st.integers(1, 9),
    context=st.integers(1, 12),
    sequences=st.integers(1, 70),
    reduce=st.sampled_from(["mean", "sum"]),
    scale=st.sampled_from([0.01, 0.5, 3.0]),
)
def test_any_size(dim, outputs, heads, context, sequences, reduce, scale):
    task = InContextRegression(np.eye(dim), context, outputs=outputs, noise_variance=0.1)
    batch = task.sample(sequences, key=jax.random.key(0))
    shape = {"dim": dim, "heads": heads, "outputs": outputs, "activation": "softmax", "key": jax.random.key(1)}
    for model in (
        MergedAttention.random(**shape, scale=scale, label_blocks="random"),  # attends to the query too
        MultiHeadAttention.random(**shape, scale=scale),
    ):
        assert_same(both(Sampled(batch, reduce), model), rtol=1e-11)


def test_scores_far_apart():
    """Scores of some hundreds: the least weights vanish, and no exponential overflows."""
    batch = InContextRegression(np.eye(3), 20).sample(40, key=jax.random.key(0))
    model = SeparateAttention.random(dim=3, heads=2, scale=20.0, activation="softmax", key=jax.random.key(1))
    assert_same(both(Sampled(batch), model), rtol=1e-10)


def test_single_precision_keeps_six_digits():
    batch = InContextRegression(np.eye(4), 31).sample(300, key=jax.random.key(0))
    model = MergedAttention.random(dim=4, heads=8, scale=0.3, activation="softmax", key=jax.random.key(1))
    single = both(Sampled(batch, precision="float32"), model)
    assert_same(single, rtol=1e-6)
    assert abs(single[0][0] - single[1][0]) > 1e-12  # or it was not single


@pytest.mark.parametrize("who", ["one", "shared data", "own data"])
def test_a_descent_is_the_same_with_and_without(who: str, with_and_without):
    task = InContextRegression(np.diag([0.6, 0.4]), 8)
    keys = jax.random.split(jax.random.key(0), 3)
    models = [SeparateAttention.random(dim=2, heads=3, scale=0.3, activation="softmax", key=key) for key in keys]
    objectives = [Sampled(task.sample(30, key=key)) for key in keys]
    model = models[0] if who == "one" else Ensemble.of(models)
    objective = Ensemble.of(objectives) if who == "own data" else objectives[0]
    found = with_and_without(lambda: descend(model, objective, rate=0.1, steps=50, progress=False))
    for name in ("loss", "key", "value"):
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-10, atol=1e-12)
    assert float(found[0]["loss"][0, -1]) < float(found[0]["loss"][0, 0])


def test_online_is_the_same_with_and_without(with_and_without):
    task = InContextRegression(np.diag([0.6, 0.4]), 8)
    model = MergedAttention.random(dim=2, heads=3, scale=0.3, activation="softmax", key=jax.random.key(0))
    found = with_and_without(
        lambda: online(model, task, batch_size=20, rate=0.1, steps=30, progress=False, key=jax.random.key(1))
    )
    np.testing.assert_allclose(found[0]["loss"], found[1]["loss"], rtol=1e-10)


def test_where_it_does_not_apply():
    batch = InContextRegression(np.eye(2), 5).sample(10, key=jax.random.key(0))
    linear = MergedAttention.random(dim=2, heads=2, scale=0.1, key=jax.random.key(1))
    assert gradient_form(Sampled(batch), linear).batch is batch  # pyright: ignore[reportAttributeAccessIssue]
    several = InContextRegression(np.eye(2), ContextLengths.uniform(5)).sample(10, key=jax.random.key(0))
    softmax = MergedAttention.random(dim=2, heads=2, scale=0.1, activation="softmax", key=jax.random.key(1))
    assert isinstance(gradient_form(Sampled(several), softmax), Sampled)


def test_without_a_compiler(tmp_path: Path):
    """A machine that has none trains all the same."""
    program = (
        "import jax, numpy as np; from stepwell import native\n"
        "assert native.kernel('softmax_loss', 'double') is None\n"
        "from stepwell.tasks import InContextRegression; from stepwell.models import MergedAttention\n"
        "from stepwell.objectives import Sampled; from stepwell.dynamics import descend\n"
        "batch = InContextRegression(np.eye(2), 5).sample(10, key=jax.random.key(0))\n"
        "model = MergedAttention.random(dim=2, heads=2, scale=.1, activation='softmax', key=jax.random.key(1))\n"
        "print(descend(model, Sampled(batch), rate=.1, steps=3, progress=False).attrs['outcome'])\n"
    )
    environment = {**os.environ, "CC": "no-such-compiler", "STEPWELL_CACHE": str(tmp_path)}
    environment.pop("STEPWELL_NATIVE_REPORTED", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be used, so plain JAX is used instead") == 1 and "no-such-compiler" in done.stderr
    assert done.stdout == "finished\n"
    assert [path for path in tmp_path.rglob("*.so")] == []


def softmax_model(**options):
    return MergedAttention.random(dim=2, heads=2, scale=0.5, activation="softmax", key=jax.random.key(1), **options)


@pytest.mark.parametrize("spoil", [np.nan, np.inf, 1e308])
def test_what_is_not_finite_stays_so(spoil: float):
    batch = InContextRegression(np.eye(2), 5).sample(10, key=jax.random.key(0))
    model = softmax_model()
    broken = model.with_weights({"value": model.value, "key_query": model.key_query.at[0, 0, 0].set(spoil)})
    plain = Sampled(batch)
    fused = gradient_form(plain, broken)
    assert isinstance(fused, FusedSampled)
    assert np.isfinite(float(fused(model))) and np.isfinite(float(plain(broken))) == np.isfinite(float(fused(broken)))
    assert descend(broken, plain, rate=0.1, steps=3, progress=False, throw=False).attrs["outcome"] == "diverged"


def test_the_label_of_the_query_is_not_looked_at():
    drawn = InContextRegression(np.eye(2), 5).sample(10, key=jax.random.key(0))
    told = Batch(drawn.tokens.at[:, -1, 2:].set(5.0), drawn.labels, drawn.context)
    assert_same(both(Sampled(told), softmax_model()), rtol=1e-11)


def test_other_precisions_take_the_plain_way():
    drawn = InContextRegression(np.eye(2), 5).sample(10, key=jax.random.key(0))
    single = Batch(drawn.tokens.astype(np.float32), drawn.labels.astype(np.float32), drawn.context)
    model = softmax_model()
    assert isinstance(gradient_form(Sampled(single), model), Sampled)
    small = model.with_weights({name: value.astype(np.float32) for name, value in model.weights().items()})
    assert isinstance(gradient_form(Sampled(drawn), small), Sampled)


def test_runs_that_do_not_fit_are_refused():
    """Data along one axis and models along another: more results than runs."""
    task = InContextRegression(np.eye(2), 5)
    keys = jax.random.split(jax.random.key(0), 3)
    models = Ensemble.of([softmax_model() for _ in keys]).stacked
    data = Ensemble.of([gradient_form(Sampled(task.sample(10, key=key)), softmax_model()) for key in keys]).stacked
    with pytest.raises(Exception, match="do not fit together"):
        jax.vmap(lambda objective: jax.vmap(objective)(models))(data)
