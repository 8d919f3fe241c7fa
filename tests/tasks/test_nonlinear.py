"""Regression on a nonlinear function of one direction, against its stated law."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import eval_hermitenorm

from stepwell._util.errors import InvalidInput
from stepwell.tasks import SingleIndexRegression

KEY = jax.random.key(0)


def test_a_link_by_coefficients_is_the_sum_of_normalized_hermite_polynomials():
    coefficients = (0.3, -1.0, 0.5, 0.0, 2.0, 0.1)
    s = np.linspace(-4, 4, 41)
    expected = sum(c * eval_hermitenorm(k, s) / math.sqrt(math.factorial(k)) for k, c in enumerate(coefficients))
    found = SingleIndexRegression(3, coefficients).response(jnp.asarray(s))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_labels_of_a_linear_link_are_linear_with_a_unit_direction_that_is_new_in_each_sequence():
    batch = SingleIndexRegression(4, (0.0, 1.0), 9).sample(2000, key=KEY)
    x, y = np.asarray(batch.tokens[..., :4]), np.asarray(batch.labels[..., 0])
    u = np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)])
    np.testing.assert_allclose(np.linalg.norm(u, axis=1), 1.0, atol=1e-9)
    # Uniform on the sphere: mean 0 and covariance I/4; the variance of a squared coordinate is 3/(4·6) - 1/16 = 1/16.
    np.testing.assert_allclose(u.mean(axis=0), 0.0, atol=5 * 0.5 / np.sqrt(2000))
    np.testing.assert_allclose(u.T @ u / 2000, np.eye(4) / 4, atol=5 * 0.25 / np.sqrt(2000))


def test_a_given_direction_and_function_are_used_and_noise_spares_the_target():
    u = np.array([0.6, 0.0, 0.8])
    task = SingleIndexRegression(3, jnp.tanh, 7, direction=u, noise_variance=0.5)
    batch = task.sample(3000, key=KEY)
    truth = np.tanh(np.asarray(batch.tokens[..., :3]) @ u)
    np.testing.assert_allclose(batch.labels[..., 0], truth, rtol=1e-10, atol=1e-12)
    noise = np.asarray(batch.tokens[:, :-1, 3]) - truth[:, :-1]
    assert abs(noise.var() - 0.5) < 5 * 0.5 * np.sqrt(2 / noise.size)
    assert np.all(np.asarray(batch.tokens[:, -1, 3]) == 0.0)


def test_the_power_of_a_label_is_the_sum_of_squared_coefficients():
    target = np.asarray(SingleIndexRegression(5, (0.5, 1.0, 0.0, 0.7), 1).sample(40_000, key=KEY).labels[:, -1]) ** 2
    assert abs(target.mean() - (0.25 + 1.0 + 0.49)) < 5 * target.std() / np.sqrt(target.size)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dim": 0, "link": (0, 1)}, "dim"),
        ({"dim": 2, "link": ()}, "coefficients"),
        ({"dim": 2, "link": (1.0,) * 40}, "or a function"),
        ({"dim": 2, "link": (0, float("nan"))}, "Hermite coefficient"),
        ({"dim": 2, "link": (0, 1), "direction": [1.0]}, "must be (2,)"),
        ({"dim": 2, "link": (0, 1), "direction": [1.0, 1.0]}, "divide by its norm"),
        ({"dim": 2, "link": (0, 1), "direction": "up"}, "vector of 2 numbers"),
        ({"dim": 2, "link": (0, 1), "noise_variance": -1}, "noise_variance"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, words):
    with pytest.raises(InvalidInput) as refusal:
        SingleIndexRegression(**arguments)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
