"""The exact loss of several heads of one task: against samples, the loss of one head, and known optima."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from stepwell._util.errors import InvalidInput
from stepwell.theory import MultiRegression, softmax

PAPER = MultiRegression((5,), (0.2,), 0.1, 40)


def sampled(task, omega, mu, samples, seed):
    """The loss of the predictor itself, with its standard error; task vector and noise are integrated."""
    rng = np.random.default_rng(seed)
    (context,), (d,) = task.context.counts, task.dims
    x, q = rng.normal(size=(samples, context, d)), rng.normal(size=(samples, d))
    scores = np.einsum("sld,sd->sl", x, q)[:, None] * omega
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = np.einsum("shl,h->sl", p / p.sum(axis=-1, keepdims=True), mu)
    miss = q - np.einsum("sl,sld->sd", weights, x)
    losses = task.strengths[0] * np.sum(miss**2, axis=1) + task.noise_variance * np.sum(weights**2, axis=1)
    return losses.mean(), losses.std(ddof=1) / samples**0.5


@pytest.mark.parametrize(
    ("d", "noise", "context", "omega", "mu"),
    [
        (5, 0.1, 40, [0.13, -0.13], [3.45, -3.45]),
        (5, 0.1, 40, [-0.13, 0.13, -0.128, 0.0], [-2.1, 3.38, -1.25, 0.3]),
        (2, 0.7, 8, [0.9, 0.4, -0.6], [0.8, 0.5, -1.0]),
        (1, 0.0, 3, [1.5, -0.7], [0.7, -0.4]),
        (1, 0.3, 1, [0.5, -0.5], [0.3, 0.4]),
        (12, 1.0, 30, [0.3, 0.3], [-0.5, 2.0]),
    ],
)
def test_the_loss_of_several_heads_against_samples(d, noise, context, omega, mu):
    task, omega, mu = MultiRegression((d,), (0.7,), noise, context), np.array(omega), np.array(mu)
    mean, error = sampled(task, omega[:, None], mu, 20_000, seed=d)
    # Six numbers: five standard errors by chance have probability 3e-6.
    assert abs(softmax.exact_heads(task, omega[:, None]).loss(mu) - mean) < 5 * error


@pytest.mark.parametrize(("d", "omega", "mu"), [(5, 0.5179, 1.497), (1, -1.3, -0.6), (30, 0.2, 4.0)])
def test_one_head_and_its_copies_have_the_exact_loss(d, omega, mu):
    task = MultiRegression((d,), (0.3,), 0.4, 25)
    expected = softmax.exact_loss(task, np.array([[omega]]), np.array([[mu]]))
    np.testing.assert_allclose(softmax.exact_heads(task, np.array([[omega]])).loss(np.array([mu])), expected, rtol=1e-7)
    copies = softmax.exact_heads(task, np.full((3, 1), omega))
    np.testing.assert_allclose(copies.loss(mu * np.array([0.2, 1.5, -0.7])), expected, rtol=1e-7)
    np.testing.assert_allclose(np.sum(copies.best_mu), softmax.exact_heads(task, np.array([[omega]])).best_mu[0])


def test_flat_pairs_are_debiased_gradient_descent():
    """The gap is of second order in a = dω²."""
    debiased = float(softmax.best_gradient_step(PAPER).loss[0])
    gaps = []
    for omega in (0.02, 0.01, 0.005):
        pair = softmax.exact_heads(PAPER, np.array([[omega], [-omega]]))
        gaps.append(pair.loss(pair.best_mu) - debiased)
        np.testing.assert_allclose(2 * omega * pair.best_mu[0], 1 / (1 + 5.5 / 40), rtol=60 * omega**2)
    assert np.all(np.abs(gaps) < 10 * np.array([0.02, 0.01, 0.005]) ** 2)
    np.testing.assert_allclose(np.array(gaps[:-1]) / gaps[1:], 4, rtol=0.15)


def test_a_pair_is_best_at_finite_weights():
    """What the spectral loss has not: at the published setting the least loss is at ω = 0.071, below the flat limit."""

    def least(omega):
        pair = softmax.exact_heads(PAPER, np.array([[omega], [-omega]]))
        return pair.loss(pair.best_mu)

    found: Any = minimize_scalar(least, bounds=(0.02, 0.2), method="bounded", options={"xatol": 1e-4})
    flat = float(softmax.best_gradient_step(PAPER).loss[0])
    np.testing.assert_allclose(found.x, 0.0712, atol=5e-4)
    np.testing.assert_allclose(found.fun + 0.1, 0.2428224, atol=3e-6)
    np.testing.assert_allclose(flat - found.fun, 3.5e-5, atol=3e-6)
    np.testing.assert_allclose(least(0.126) - found.fun, 1.4e-4, atol=1e-5)
    assert max(least(0.03), least(0.12)) - found.fun < 1.15e-4
    pair = softmax.exact_heads(PAPER, np.array([[found.x], [-found.x]]))
    np.testing.assert_allclose(pair.best_mu, [6.18, -6.18], rtol=0.01)
    wider = softmax.exact_heads(PAPER, np.array([[0.13], [-0.13]]))
    np.testing.assert_allclose(2 * 0.13 * wider.best_mu[0], 0.8818, atol=5.1e-5)


def test_what_has_no_answer_is_refused():
    with pytest.raises(InvalidInput, match="consists of 2 tasks"):
        softmax.exact_heads(MultiRegression((2, 3), (1.0, 1.0), 0.0, 10), np.ones((2, 2)))
    with pytest.raises(InvalidInput, match="not finite"):
        softmax.exact_heads(PAPER, np.array([[np.nan]]))
