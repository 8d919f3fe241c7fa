"""The exact loss of several heads of one task: against the theory's quadrature, samples, and differences."""

import equinox as eqx
import jax
import numpy as np
import pytest

from stepwell.models import SpectralAttention, decomposable
from stepwell.objectives import Exact, ReducedSampled
from stepwell.tasks import MultiTaskRegression
from stepwell.theory.softmax import exact_heads

CASES = [
    (5, 0.1, 40, [0.13, -0.13], [3.45, -3.45]),
    (5, 0.1, 40, [-0.13, 0.13, -0.128, 0.0], [-2.1, 3.38, -1.25, 0.3]),
    (2, 0.7, 8, [0.4, 0.1, -0.3], [0.8, 0.5, -1.0]),
    (30, 0.3, 25, [0.15, 0.15], [-0.5, 2.0]),
    (5, 0.3, 1, [0.2, -0.2], [0.3, 0.4]),
]


def built(d, noise, context, omega, mu):
    task = MultiTaskRegression((d,), 1.0, context, noise_variance=noise, convention="total")
    return task, SpectralAttention.balanced(np.array(omega)[:, None], np.array(mu)[:, None], (d,))


@pytest.mark.parametrize("case", CASES)
def test_the_exact_loss_of_several_heads_is_that_of_the_theory(case):
    task, model = built(*case)
    objective = Exact(task, reach=10.0)
    objective.check(model)
    expected = exact_heads(task, np.asarray(model.omega())).loss(np.asarray(model.mu())[:, 0])
    np.testing.assert_allclose(objective(model), expected, rtol=1e-6)
    whole = decomposable(model, task, key=jax.random.key(0))
    objective.check(whole)
    np.testing.assert_allclose(objective(whole), expected, rtol=1e-6)


@pytest.mark.parametrize("case", CASES[1:3])
def test_the_exact_loss_of_several_heads_against_samples(case):
    task, model = built(*case)
    sampled = ReducedSampled(task, 20_000, key=jax.random.key(1))
    assert abs(float(Exact(task, reach=10.0)(model) - sampled(model))) < 5 * float(sampled.standard_error(model))


def test_one_head_in_two_halves_has_the_loss_of_one():
    task, whole = built(4, 0.2, 15, [0.3], [1.2])
    halves = built(4, 0.2, 15, [0.3, 0.3], [0.5, 0.7])[1]
    np.testing.assert_allclose(Exact(task, reach=10.0)(halves), Exact(task)(whole), rtol=1e-6)


def test_gradients_of_several_heads_are_differences_of_the_theory():
    task, model = built(*CASES[2])
    gradient = eqx.filter_grad(Exact(task, reach=10.0))(model)
    omega, mu = np.asarray(model.omega()), np.asarray(model.mu())[:, 0]

    def loss(omega, mu):
        return exact_heads(task, omega).loss(mu)

    for h in range(3):
        step = 1e-4 * np.eye(3)[h]
        slopes = [
            (loss(omega + step[:, None], mu) - loss(omega - step[:, None], mu)) / 2e-4,
            (loss(omega, mu + step) - loss(omega, mu - step)) / 2e-4,
        ]
        weights, found = model.weights(), gradient.weights()
        # ω and μ are products of two factors.
        for slope, (first, second), product in zip(
            slopes, (("key", "query"), ("value", "output")), (omega[h, 0], mu[h]), strict=True
        ):
            scale = product / (weights[first][h, 0] * weights[second][h, 0])
            np.testing.assert_allclose(found[first][h, 0], slope * scale * weights[second][h, 0], rtol=2e-5, atol=1e-7)


def test_weights_that_are_too_sharp_are_refused_and_not_a_number():
    task, model = built(5, 0.1, 40, [0.8, -0.8], [1.0, -1.0])
    with pytest.raises(ValueError, match="the table reaches 10"):
        Exact(task, reach=10.0).check(model)
    assert np.isnan(Exact(task, reach=10.0)(model))
