"""The in-context/in-weight mixture and its two test sets."""

import jax
import numpy as np

from stepwell.tasks import InContextInWeightMixture

KEY = jax.random.key(0)


def task_vectors(batch, dim):
    x, y = np.asarray(batch.tokens[..., :dim]), np.asarray(batch.labels[..., 0])
    return np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)])


def test_the_first_fraction_has_its_own_task_vectors_and_the_rest_the_fixed_one():
    mixture = InContextInWeightMixture.random(np.eye(3) / 3, 0.37, 8, key=jax.random.key(4))
    assert np.isclose(np.linalg.norm(mixture.fixed_task), np.sqrt(3))
    w = task_vectors(mixture.sample(3001, key=KEY), 3)  # 0.37 of which is no integer
    own = np.abs(w - mixture.fixed_task[:, 0]).max(axis=1) > 1e-9
    np.testing.assert_array_equal(own, np.arange(3001) < int(0.37 * 3001))


def test_the_in_weight_test_has_contexts_that_say_nothing():
    mixture = InContextInWeightMixture.random(np.eye(3) / 3, 0.5, 8, key=jax.random.key(4))
    batch = mixture.in_weight_test().sample(4000, key=KEY)
    queries = np.asarray(batch.tokens[:, -1, :3])
    np.testing.assert_allclose(batch.labels[:, -1, 0], queries @ mixture.fixed_task[:, 0], atol=1e-12)
    shown = np.asarray(batch.tokens[:, :-1, 3])
    product = shown * np.asarray(batch.labels[:, :-1, 0])
    assert abs(product.mean()) < 5 * product.std() / np.sqrt(product.size)
    assert abs(shown.var() - 1.0) < 5 * np.sqrt(2 / shown.size)


def test_the_in_context_test_has_new_task_vectors_only():
    mixture = InContextInWeightMixture.random(np.eye(3) / 3, 0.5, 8, centered=True, key=jax.random.key(4))
    w = task_vectors(mixture.in_context_test().sample(500, key=KEY), 3)
    np.testing.assert_allclose(np.cov(w.T), np.eye(3), atol=1e-9)
