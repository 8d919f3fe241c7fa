"""Three routes to one loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.models import ConvolutionalAttention, CubicMLP, MergedAttention, MultiHeadAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import Batch, ContextLengths, InContextInWeightMixture, InContextRegression, covariance

KEY = jax.random.key(0)


def relative_gap(first, second):
    """Largest difference over all leaves, relative to the largest entry."""
    a, b = (jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)]) for tree in (first, second))
    return float(jnp.abs(a - b).max() / jnp.abs(a).max())


@eqx.filter_jit
def compiled(objective, model):
    return eqx.filter_value_and_grad(lambda model, objective: objective(model))(model, objective)


@given(
    dim=st.integers(1, 4),
    outputs=st.integers(1, 2),
    heads=st.integers(1, 4),
    rank=st.integers(0, 3),
    normalization=st.sampled_from(["1/N", "none", "1/tokens"]),
    lengths=st.sampled_from([(5, None), (1, None), ((2, 4, 6), (0.5, 0.2, 0.3)), ((1, 2, 3), None)]),
    label_blocks=st.sampled_from(["zero", "random"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25)
@pytest.mark.filterwarnings("ignore:rank . is above the dimension")
def test_moments_equal_sampled_in_value_and_gradient(
    dim, outputs, heads, rank, normalization, lengths, label_blocks, seed
):
    """For any data whatever: tokens and labels need not come from a task."""
    rng = np.random.default_rng(seed)
    lengths = ContextLengths(*lengths)
    tokens = rng.normal(size=(37, lengths.tokens, dim + outputs))
    labels = rng.normal(size=(37, lengths.tokens, outputs))
    batch = Batch(jnp.asarray(tokens), jnp.asarray(labels), lengths)
    common = {"dim": dim, "heads": heads, "outputs": outputs, "scale": 0.8, "key": jax.random.key(seed)}
    common |= {"normalization": normalization, "label_blocks": label_blocks}
    model = SeparateAttention.random(rank=rank, **common) if rank else MergedAttention.random(**common)
    sampled, moments = Sampled(batch), Moments.of_batch(batch, normalization=normalization)
    sampled.check(model)
    moments.check(model)
    (loss, gradient), (exact, exact_gradient) = compiled(sampled, model), compiled(moments, model)
    np.testing.assert_allclose(exact, loss, rtol=1e-10)
    assert relative_gap(gradient, exact_gradient) < 1e-10
    if label_blocks == "zero":
        cubic = Moments.of_batch(batch, features="cubic", normalization=normalization)
        cubic.check(model)
        loss, gradient = compiled(cubic, model)
        np.testing.assert_allclose(exact, loss, rtol=1e-10)
        # Label blocks have a gradient at finite P, which the cubic features leave out by design.
        assert all(float(jnp.abs(block).max()) == 0.0 for block in own_label_blocks(gradient, dim))
        kept = without_label_blocks(exact_gradient, dim), without_label_blocks(gradient, dim)
        assert relative_gap(*kept) < 1e-10


def own_label_blocks(model, dim):
    scores = model.key[..., dim:] if isinstance(model, SeparateAttention) else model.key_query[:, dim:]
    return [model.value[..., :dim], scores]


def without_label_blocks(model, dim):
    if isinstance(model, SeparateAttention):
        return [model.value[..., dim:], model.key[..., :dim], model.query]
    return [model.value[..., dim:], model.key_query[:, :dim]]


@pytest.mark.parametrize("fraction", [0.0, 0.6])
def test_moments_equal_sampled_on_mixtures(fraction):
    task = InContextInWeightMixture.random(np.diag([0.6, 0.4]), fraction, 5, centered=True, key=jax.random.key(3))
    model = MergedAttention.random(dim=2, heads=3, scale=0.8, label_blocks="random", key=jax.random.key(1))
    found = compiled(Sampled(task.sample(100, key=KEY)), model), compiled(Moments.of_task(task, 100, key=KEY), model)
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    assert relative_gap(found[0][1], found[1][1]) < 1e-10


@pytest.mark.parametrize("attends_query", [True, False])
def test_moments_equal_sampled_for_linear_multihead_attention(attends_query):
    task = InContextRegression(np.diag([0.6, 0.4]), 5, outputs=2)
    batch = task.sample(50, key=KEY)
    model = MultiHeadAttention.random(
        dim=2, outputs=2, heads=3, embedding=5, scale=0.7, activation="linear", key=jax.random.key(1)
    )
    model = MultiHeadAttention(
        model.query, model.key, model.value, model.output, activation="linear", attends_query=attends_query
    )
    moments = Moments.of_batch(batch, normalization="none", attends_query=attends_query)
    moments.check(model)
    sampled, exact = compiled(Sampled(batch), model), compiled(moments, model)
    np.testing.assert_allclose(exact[0], sampled[0], rtol=1e-10)
    assert relative_gap(sampled[1], exact[1]) < 1e-10


def test_models_of_features_have_the_same_loss_by_either_route():
    task = InContextRegression(np.diag([0.5, 0.3, 0.2]), ContextLengths([3, 6]))
    features = task.sample(64, key=KEY).cubic_features()
    separate = SeparateAttention.random(dim=3, heads=2, scale=0.8, key=jax.random.key(1))
    for model in (
        CubicMLP.random(dim=3, heads=4, scale=0.5, key=jax.random.key(1)),
        ConvolutionalAttention.from_separate(separate),
    ):
        routes = Sampled(features), Moments.of_features(features)
        (a, da), (b, db) = (compiled(route, model) for route in routes)
        np.testing.assert_allclose(a, b, rtol=1e-10)
        assert relative_gap(da, db) < 1e-10


def test_moments_do_not_depend_on_how_the_data_are_cut():
    task = InContextRegression(np.diag([0.6, 0.4]), ContextLengths([2, 5]))
    whole = Moments.of_batch(task.sample(5000, key=KEY))
    halves = [Moments.of_chunks(task.chunks(5000, key=KEY, numbers=part)) for part in (range(1), range(1, 3))]
    for other in (
        Moments.of_chunks(task.chunks(5000, key=KEY, size=1)),
        Moments.of_task(task, 5000, key=KEY),
        Moments.of_parts(zip(halves, (2048, 2952), strict=True)),
    ):
        np.testing.assert_allclose(other.gram, whole.gram, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(other.cross, whole.cross, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("optimized")
def test_population_is_the_limit_with_an_error_that_falls_as_one_over_root_p():
    task = InContextRegression(
        covariance([0.6, 0.3], key=jax.random.key(5)),
        ContextLengths([3, 8]),
        task_covariance=covariance([2.0, 0.5], key=jax.random.key(6)),
        noise_variance=0.2,
        outputs=2,
    )
    model = SeparateAttention.random(dim=2, heads=2, scale=0.8, outputs=2, key=jax.random.key(1))
    exact, exact_gradient = jax.value_and_grad(Population(task))(model)
    sizes, repeats = [1000, 10_000, 100_000], 20
    errors, gradient_errors = [], []
    for size in sizes:
        keys = jax.random.split(jax.random.key(size), repeats)
        found = [compiled(Moments.of_task(task, size, key=key), model) for key in keys]
        errors.append(np.sqrt(np.mean([(float(loss) - float(exact)) ** 2 for loss, _ in found])))
        gaps = [np.asarray(gradient.query - exact_gradient.query) for _, gradient in found]
        gradient_errors.append(np.sqrt(np.mean(np.square(gaps))))
    for measured in (errors, gradient_errors):
        slope = np.polyfit(np.log(sizes), np.log(measured), 1)[0]
        # Each root mean square has a relative error of about 1/√(2·repeats) = 0.16, more for heavy tails; over two
        # decades the slope is then uncertain by about 0.16·√2/ln(100) = 0.05. Three of those.
        assert abs(slope + 0.5) < 0.15


def test_population_of_the_papers_case_is_its_formula_by_hand():
    lam, n = np.array([0.5, 0.3, 0.2]), 7
    task = InContextRegression(np.diag(lam), n)
    a = np.array([1.0, 0.5, 0.2])
    model = SeparateAttention.aligned(jnp.eye(3), heads=3, scale=jnp.asarray(a ** (1 / 3)))
    c = (1 + 1 / n) * lam**2 + lam.sum() * lam / n
    np.testing.assert_allclose(Population(task)(model), np.sum(lam - 2 * a * lam**2 + c * a**2 * lam), rtol=1e-12)
