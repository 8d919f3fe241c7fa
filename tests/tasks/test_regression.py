"""Samples against their stated law, and closed-form moments against Monte Carlo."""

import copy
import pickle

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.tasks import (
    ContextLengths,
    InContextRegression,
    covariance,
    population_moments,
    published_covariance,
    random_rotation,
)
from stepwell.theory import linear

KEY = jax.random.key(0)


def general_task(**changes) -> InContextRegression:
    options = {
        "context": 5,
        "task_covariance": covariance([2.0, 0.5, 1.0], key=jax.random.key(2)),
        "noise_variance": 0.3,
    } | changes
    return InContextRegression(covariance([0.6, 0.3, 0.1], key=jax.random.key(1)), **options)


def test_a_sample_has_the_stated_shape_and_a_zero_where_the_query_label_would_be():
    batch = general_task(outputs=2).sample(7, key=KEY)
    assert batch.tokens.shape == (7, 6, 5) and batch.labels.shape == (7, 6, 2)
    assert batch.tokens.dtype == np.float64
    assert np.all(np.asarray(batch.tokens[:, -1, 3:]) == 0.0)


def test_labels_are_linear_in_the_inputs_with_one_task_vector_a_sequence():
    batch = general_task(noise_variance=0.0, context=8).sample(20, key=KEY)
    x, y = np.asarray(batch.tokens[..., :3]), np.asarray(batch.labels[..., 0])
    for inputs, labels in zip(x, y, strict=True):
        w = np.linalg.lstsq(inputs, labels, rcond=None)[0]
        np.testing.assert_allclose(inputs @ w, labels, atol=1e-12)
    np.testing.assert_array_equal(np.asarray(batch.tokens[:, :-1, 3]), y[:, :-1])


def test_noise_reaches_context_labels_only():
    batch = general_task(noise_variance=0.3).sample(20_000, key=KEY)
    noise = np.asarray(batch.tokens[:, :-1, 3] - batch.labels[:, :-1, 0]).reshape(-1)
    assert abs(noise.var() - 0.3) < 5 * 0.3 * np.sqrt(2 / noise.size)


def test_a_shorter_sample_is_the_beginning_of_a_longer_one_and_chunks_are_its_parts():
    task = general_task()
    whole = task.sample(5000, key=KEY)
    np.testing.assert_array_equal(task.sample(100, key=KEY).tokens, whole.tokens[:100])
    chunks = list(task.chunks(5000, key=KEY, size=2048))
    assert [chunk.size for chunk in chunks] == [2048, 2048, 904]
    np.testing.assert_array_equal(np.concatenate([c.tokens for c in chunks]), whole.tokens)


@pytest.mark.parametrize("n", [50, 5000])
def test_centered_and_whitened_samples_are_so_exactly(n):
    task = InContextRegression(np.diag([0.7, 0.3]), 4, outputs=2, centered=True, whitened=True)
    batch = task.sample(n, key=KEY)
    x, y = np.asarray(batch.tokens[..., :2]), np.asarray(batch.labels)
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=1e-13)
    w = np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)])
    np.testing.assert_allclose(w.mean(axis=0), 0.0, atol=1e-9)
    for output in range(2):
        np.testing.assert_allclose(np.cov(w[..., output].T), np.eye(2), atol=1e-8)


@pytest.mark.parametrize("context", [6, ContextLengths([2, 5], [0.3, 0.7])])
@pytest.mark.parametrize("normalization", ["1/N", "none", "1/tokens"])
def test_population_moments_agree_with_monte_carlo(context, normalization):
    task = general_task(context=context)
    moments = population_moments(task, normalization)
    batch = task.sample(100_000, key=KEY)
    tokens, x = np.asarray(batch.tokens), np.asarray(batch.tokens[..., :3])
    w = np.linalg.solve(
        np.einsum("sni,snj->sij", x, x) + 1e-12 * np.eye(3), np.einsum("sni,sn->si", x, batch.labels[..., 0])[..., None]
    )[..., 0]
    counts, probabilities = task.context.counts, task.context.probabilities
    scale = {"1/N": lambda n: 1 / n, "none": lambda n: 1.0, "1/tokens": lambda n: 1 / (n + 1)}[normalization]
    beta = {n: scale(n) * np.einsum("sn,sni->si", tokens[:, :n, 3], x[:, :n]) for n in counts}
    # Rows where the task vector is not identified by the inputs (fewer tokens than dimensions) do not occur here.
    mix = list(zip(counts, probabilities, strict=True))
    cross = np.sum([p * np.einsum("si,sj->sij", beta[n], w) for n, p in mix], axis=0)
    second = np.sum([p * np.einsum("si,sj->sij", beta[n], beta[n]) for n, p in mix], axis=0)
    for samples, expected in ((cross, moments.cross), (second, moments.second)):
        error = samples.std(axis=0) / np.sqrt(len(samples))
        assert np.all(np.abs(samples.mean(axis=0) - expected) < 5 * error)
    power = np.asarray(batch.labels[:, -1, 0]) ** 2
    assert abs(power.mean() - moments.label_power) < 5 * power.std() / np.sqrt(power.size)


def test_moments_of_the_papers_case_are_its_closed_form():
    lam = np.array([0.4, 0.3, 0.2, 0.1])
    moments = population_moments(InContextRegression(np.diag(lam), 31))
    np.testing.assert_allclose(moments.cross, np.diag(lam))
    np.testing.assert_allclose(moments.second, np.diag(lam**2 + (lam + 1.0) * lam / 31), rtol=1e-14)


@given(st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=20)
def test_covariance_has_the_given_eigenvalues_whatever_its_eigenvectors(dim, seed):
    values = np.sort(np.random.default_rng(seed).uniform(0, 2, dim))
    matrix = covariance(values, key=jax.random.key(seed))
    np.testing.assert_allclose(np.linalg.eigvalsh(matrix), values, atol=1e-14)
    np.testing.assert_array_equal(matrix, matrix.T)


def test_a_covariance_of_the_largest_numbers_is_finite():
    np.testing.assert_array_equal(covariance([1e308]), [[1e308]])
    assert np.all(np.isfinite(covariance([1e308, 1e307], key=KEY)))
    assert np.all(np.isfinite(InContextRegression(covariance([1e308]), 3).covariance))


def test_a_task_keeps_its_covariance_when_the_matrix_it_was_given_changes():
    for matrix in (covariance([1.0, 0.5], key=KEY), covariance([1.0, 0.5], key=KEY).T, np.diag([1.0, 0.5])):
        task, before = InContextRegression(matrix, 31), np.array(matrix)
        matrix[0, 0] += 1.0
        np.testing.assert_array_equal(task.covariance, before)
    assert InContextRegression(covariance([1.0, 2.0]).astype(int), 31).covariance.dtype == np.float64


def test_a_covariance_that_was_changed_has_the_spectrum_of_its_entries():
    matrix = covariance([1.0, 0.5], key=KEY)
    kept = pickle.loads(pickle.dumps(matrix))
    matrix[0, 0] += 1.0
    plain = np.array(matrix)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(matrix)), plain)
    np.testing.assert_array_equal(copy.deepcopy(matrix), plain)
    found, expected = (linear.components(InContextRegression(part, 31)).gains for part in (matrix, plain))
    np.testing.assert_array_equal(found, expected)
    assert not np.allclose(kept, plain)
    small = covariance([1.0, 1e-17])
    small[1, 1] = 5e-17
    assert linear.modes(InContextRegression(small, 31)).variances[1] == 5e-17
    assert type(2 * matrix) is np.ndarray and type(matrix @ matrix) is np.ndarray and type(matrix.sum()) is np.float64


def test_published_covariance_has_trace_one_and_eigenvalues_in_proportion_to_their_number():
    np.testing.assert_allclose(np.linalg.eigvalsh(published_covariance(4, key=KEY)), [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(published_covariance(4, white=True, key=KEY), np.eye(4) / 4)


def test_random_eigenvectors_have_no_preferred_direction():
    """Haar: the corner of a rotation is negative as often as positive, and its square has mean 1/dim."""
    keys = jax.vmap(jax.random.key)(np.arange(400))
    each = random_rotation(2, key=keys)
    np.testing.assert_array_equal(each, [random_rotation(2, key=key) for key in keys])
    corners = each[:, 0, 0]
    assert abs(np.mean(corners < 0) - 0.5) < 5 * 0.5 / np.sqrt(400)
    assert abs(np.mean(corners**2) - 0.5) < 5 * np.sqrt(1 / 8 / 400)


def test_a_numpy_integer_is_a_context_length():
    assert ContextLengths(np.int64(5)).counts == (5,)  # pyright: ignore[reportArgumentType]
