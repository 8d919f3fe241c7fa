"""Four routes to the loss of decomposable softmax attention: all tokens, reduced samples, exact, spectral."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import chi2

from stepwell.models import MultiHeadAttention, SpectralAttention, decomposable
from stepwell.objectives import Exact, ReducedSampled, Sampled, Spectral
from stepwell.objectives._exact import query_means
from stepwell.tasks import ContextLengths, MultiTaskRegression
from stepwell.theory.softmax import exact_loss, softmax_moments

KEY = jax.random.key(0)


@eqx.filter_jit
def loss_of(objective, model):
    return objective(model)


@eqx.filter_jit
def evaluated(objective, model):
    """(loss, standard error)."""
    return objective(model), objective.standard_error(model)


@eqx.filter_jit
def per_task(objective, model):
    return objective.per_task(model)


@eqx.filter_jit
def gradient_of(objective, model):
    return jax.value_and_grad(objective)(model)


@eqx.filter_jit
def answers_of(model, tokens):
    return jax.vmap(model)(tokens)


def by_tokens(task, model, sequences, key):
    """(loss, standard error) over whole sequences, by running the model on each."""
    batch = task.sample(sequences, key=key)
    errors = np.sum(np.asarray(batch.labels[:, -1] - answers_of(model, batch.tokens)) ** 2, axis=1)
    return errors.mean(), errors.std(ddof=1) / np.sqrt(sequences)


def fixed_point(dim, context, noise):
    """A task and the head that flow leads to, in the leading order."""
    task = MultiTaskRegression((dim,), context=context, noise_variance=noise)
    rho = np.e * (1 + noise / dim) * dim / context
    return task, SpectralAttention.balanced(np.array([[dim**-0.5]]), np.array([[dim**0.5 / (1 + rho)]]), (dim,))


@given(
    dims=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    heads=st.integers(1, 3),
    attention=st.sampled_from(["softmax", "linear"]),
    lengths=st.sampled_from([20, ContextLengths([5, 50], [0.25, 0.75])]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=5)
def test_the_spectral_loss_is_its_formula(dims, heads, attention, lengths, seed):
    rng = np.random.default_rng(seed)
    strengths, noise = rng.uniform(0.5, 2, len(dims)), rng.uniform(0, 3)
    omega, mu = 0.2 * rng.normal(size=(heads, len(dims))), rng.normal(size=(heads, len(dims)))
    task = MultiTaskRegression(dims, strengths, lengths, noise_variance=noise)
    normalization = None if attention == "softmax" else "1/N"
    model = SpectralAttention.balanced(omega, mu, dims, activation=attention, normalization=normalization)
    inverse = 1 / 20 if lengths == 20 else 0.25 / 5 + 0.75 / 50
    expected = []
    for i, (lam, d) in enumerate(zip(strengths, dims, strict=True)):
        phi = 1 + noise / (lam * d)
        pairs = 0.0
        for h in range(heads):
            for g in range(heads):
                product = sum(d_j * omega[h, j] * omega[g, j] for j, d_j in enumerate(dims))
                pairs += mu[h, i] * mu[g, i] * (np.exp(product) if attention == "softmax" else product)
        expected.append(lam * d * ((1 - mu[:, i] @ omega[:, i]) ** 2 + phi * inverse * pairs))
    objective = Spectral(task, attention=attention)
    objective.check(model)
    np.testing.assert_allclose(per_task(objective, model), expected, rtol=1e-12)
    np.testing.assert_allclose(loss_of(objective, model), np.sum(expected), rtol=1e-12)


# d, L, noise variance, and per dimension: spectral, exact. Independent values, by other programs, to the digits given.
REFERENCE = [
    (5, 50, 0, 0.2137, 0.2486),
    (10, 100, 0, 0.2137, 0.2355),
    (10, 100, 1, 0.2302, 0.2518),
    (10, 1000, 0, 0.0265, 0.0322),
    (30, 100, 0, 0.4492, 0.4582),
    (30, 300, 1, 0.2193, 0.2282),
    (50, 50, 0, 0.7311, 0.7341),
    (100, 100, 0, 0.7311, 0.7319),
    (100, 1000, 1, 0.2154, 0.2183),
    (200, 200, 0, 0.7311, 0.7312),
]


@pytest.mark.parametrize(("dim", "context", "noise", "spectral", "exact"), REFERENCE)
def test_losses_at_the_fixed_point_have_their_recorded_values(dim, context, noise, spectral, exact):
    task, model = fixed_point(dim, context, float(noise))
    assert abs(Spectral(task)(model) / dim - spectral) < 0.5e-4
    objective = Exact(task)
    objective.check(model)
    found = objective.per_task(model)
    assert abs(found[0] / dim - exact) < 0.5e-4
    np.testing.assert_allclose(found, exact_loss(task, np.asarray(model.omega()), np.asarray(model.mu())), rtol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_tokens_reduced_samples_and_the_exact_loss_agree(seed):
    """Every task has one head, of either sign; heads may be shared, and attend to blocks that they do not serve."""
    rng = np.random.default_rng(seed)
    tasks, heads = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    dims = tuple(int(d) for d in rng.integers(1, 9, tasks))
    task = MultiTaskRegression(
        dims,
        rng.uniform(0.5, 2, tasks),
        int(rng.integers(2, 30)),
        noise_variance=float(rng.uniform(0, 2)),
        inputs_rotation="random",
        outputs_rotation="random",
        key=jax.random.key(seed),
    )
    omega = 0.3 * rng.normal(size=(heads, tasks))
    mu = np.zeros((heads, tasks))
    mu[rng.integers(0, heads, tasks), np.arange(tasks)] = 2 * rng.normal(size=tasks)
    spectral = SpectralAttention.balanced(omega, mu, dims)
    whole = decomposable(spectral, task, key=jax.random.key(seed))
    objective = Exact(task)
    objective.check(spectral)
    exact = np.sum(per_task(objective, spectral))
    np.testing.assert_allclose(per_task(objective, spectral), exact_loss(task, omega, mu), rtol=1e-7)
    np.testing.assert_allclose(loss_of(objective, whole), exact, rtol=1e-10)
    reduced, error = evaluated(ReducedSampled(task, 4096, key=jax.random.key(seed)), spectral)
    assert abs(reduced - exact) < 5 * error
    sampled, error = by_tokens(task, whole, 4096, jax.random.key(seed + 100))
    assert abs(sampled - exact) < 5 * error


@pytest.mark.parametrize("seed", range(4))
def test_tokens_and_reduced_samples_agree_for_several_heads_a_task(seed):
    rng = np.random.default_rng(seed)
    tasks, heads = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    dims = tuple(int(d) for d in rng.integers(1, 9, tasks))
    task = MultiTaskRegression(
        dims,
        rng.uniform(0.5, 2, tasks),
        int(rng.integers(2, 30)),
        noise_variance=float(rng.uniform(0, 2)),
        outputs=tasks + 1,
        inputs_rotation="random",
        key=jax.random.key(seed),
    )
    spectral = SpectralAttention.balanced(0.3 * rng.normal(size=(heads, tasks)), rng.normal(size=(heads, tasks)), dims)
    objective = ReducedSampled(task, 4096, key=jax.random.key(seed))
    whole = decomposable(spectral, task, key=jax.random.key(seed))
    objective.check(whole)
    reduced, error = evaluated(objective, spectral)
    np.testing.assert_allclose(loss_of(objective, whole), reduced, rtol=1e-10)
    sampled, other = by_tokens(task, whole, 8192, jax.random.key(seed + 100))
    assert abs(reduced - sampled) < 5 * np.hypot(error, other)


def test_the_spectral_loss_is_the_limit_of_a_long_context_in_many_dimensions():
    """Low by about 2/d where L is large, from the spread of the query's norm; high by self-normalization elsewhere."""
    gaps = []
    for dim in (10, 40, 160):
        task, model = fixed_point(dim, 100 * dim, 0.0)
        gaps.append(float(loss_of(Spectral(task), model) / loss_of(Exact(task), model)) - 1)
    np.testing.assert_allclose(np.array(gaps) * [10, 40, 160], -2.0, atol=0.4)


def test_linear_attention_has_its_spectral_loss_and_a_small_term_more():
    r"""Exactly $S_i c_i^2/L$ more: the fluctuation of the context along the query itself."""
    rng = np.random.default_rng(1)
    task = MultiTaskRegression((3, 5), (1.0, 0.5), 15, noise_variance=0.7)
    omega, mu = rng.normal(size=(2, 2)), 0.5 * rng.normal(size=(2, 2))
    model = SpectralAttention.balanced(omega, mu, (3, 5), activation="linear", normalization="1/N")
    objective = Spectral(task, attention="linear")
    objective.check(model)
    reached = np.sum(np.asarray(model.omega() * model.mu()), axis=0)
    expected = float(loss_of(objective, model)) + np.sum(task.signals * reached**2) / 15
    sampled, error = by_tokens(task, model, 40_000, KEY)
    assert abs(sampled - expected) < 5 * error


def by_legendre(function, end):
    """The integral from 0 by Gauss–Legendre on several pieces, and on twice as many, which must agree."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    results = []
    for count in (5, 10):
        half = end / (2 * count)
        points = half * (2 * np.arange(count)[:, None] + 1 + nodes)
        results.append(half * np.sum(function(points.ravel()).reshape(-1, *points.shape) * weights, axis=(1, 2)))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-7, atol=1e-9)
    return results[1]


@pytest.mark.parametrize(("scale", "dim", "context"), [(0.01, 1, 5), (0.1, 10, 100), (0.3, 2, 50), (1.0, 4, 20)])
def test_means_over_the_query_are_those_of_another_quadrature(scale, dim, context):
    def function(root):
        n = root**2
        r, t = softmax_moments(np.sqrt(scale * n), context)
        return np.stack([r, (t - r) / (scale * n) - 1]) * chi2.pdf(n, dim) * 2 * root

    expected = by_legendre(function, np.sqrt(chi2.ppf(1 - 1e-14, dim)))
    found = query_means(context, 80.0)(jnp.array([scale]), jnp.array([float(dim)]))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_gradients_of_the_exact_loss_are_its_differences():
    task = MultiTaskRegression((3, 6), (1.0, 2.0), 25, noise_variance=0.5)
    omega, mu = np.array([[0.3, 0.1], [0.05, -0.2]]), np.array([[1.5, 0.0], [0.0, -2.0]])
    model = SpectralAttention.balanced(omega, mu, (3, 6))
    objective = Exact(task)
    _, gradient = gradient_of(objective, model)
    for name, weight in model.weights().items():
        for place in np.argwhere(np.asarray(weight) != 0):
            step = 1e-5
            shifted = [
                loss_of(
                    objective, model.with_weights(model.weights() | {name: weight.at[tuple(place)].add(sign * step)})
                )
                for sign in (1, -1)
            ]
            difference = (shifted[0] - shifted[1]) / (2 * step)
            np.testing.assert_allclose(getattr(gradient, name)[tuple(place)], difference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_the_floor_of_one_task_is_the_least_loss(attention):
    task = MultiTaskRegression((6,), (2.0,), 40, noise_variance=3.0)
    normalization = None if attention == "softmax" else "1/N"
    objective = Spectral(task, attention=attention)

    def model(weights):
        omega, mu = jnp.reshape(weights, (2, 1, 1))
        return SpectralAttention.balanced(omega, mu, (6,), activation=attention, normalization=normalization)

    value = jax.jit(jax.value_and_grad(lambda weights: objective(model(weights))))
    best = minimize(lambda weights: [np.asarray(part) for part in value(weights)], [0.3, 1.0], jac=True, tol=1e-12)
    floor = objective.floor(model(best.x))
    assert floor is not None
    np.testing.assert_allclose(floor, best.fun, rtol=1e-9)


def test_the_floor_is_not_claimed_where_it_is_not_known():
    two = MultiTaskRegression((2, 2), context=10)
    one = MultiTaskRegression((2,), context=10)
    assert Spectral(two).floor(SpectralAttention.balanced(np.ones((1, 2)), np.ones((1, 2)), (2, 2))) is None
    model = SpectralAttention.balanced(np.ones((2, 1)), np.ones((2, 1)), (2,))
    for objective in (Spectral(one), Exact(one), ReducedSampled(one, 32, key=KEY)):
        assert objective.floor(model) is None


def test_the_sum_over_outputs_is_the_mean_times_their_number():
    task = MultiTaskRegression((2, 2, 3), context=6)
    model = MultiHeadAttention.random(dim=7, outputs=3, heads=2, scale=0.5, key=KEY)
    for data in (task, MultiTaskRegression((2, 2, 3), context=ContextLengths([3, 6]))):
        batch = data.sample(20, key=KEY)
        np.testing.assert_allclose(Sampled(batch, "sum")(model), 3 * Sampled(batch)(model), rtol=1e-14)
