"""R and T of softmax weights: other integrals, Stein's lemma, Monte Carlo and limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtri

from stepwell._util.errors import InvalidInput
from stepwell.theory.softmax import softmax_moments


def normal(z):
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("a", [1e-3, 0.3, 1.0, 2.5, 6.0, 20.0])
def test_two_tokens_by_the_difference_of_their_scores(a):
    # p depends on z1 - z2 = sqrt(2) g alone, and z1 + z2 is independent of it.
    def p(g):
        return 1 / (1 + np.exp(-a * np.sqrt(2) * g))

    options = {"epsabs": 1e-13, "epsrel": 1e-12, "limit": 500}
    r = 2 * quad(lambda g: normal(g) * (p(g) ** 2 + p(-g) ** 2), -12, 0, **options)[0]
    t = 0.5 + 4 * quad(lambda g: normal(g) * (p(g) - 0.5) ** 2 * g**2, -12, 0, **options)[0]
    found = softmax_moments(np.array([a]), 2)
    assert found.concentration[0] == pytest.approx(r, rel=1e-9)
    assert found.second[0] == pytest.approx(t, rel=1e-9)


def first_moment(a, context):
    """E Σ p z as the derivative in a of E log Z = ∫ (e^{-t} - C(t)^L) dt/t, on a grid of its own."""
    z = np.linspace(-11, 11, 4001)
    weights = normal(z) * (z[1] - z[0])
    u = np.linspace(-a * 11 - np.log(context) - 40, a * 11 + 5, 3001)
    total = 0.0
    for block in np.array_split(u, 40):
        power = np.exp(np.minimum(block[:, None] + a * z, 700))
        lost = -np.expm1(-power) @ weights
        # d/da of C^L is -L C^{L-1} E[t z e^{az - t e^{az}}].
        total += np.sum(context * (power * np.exp(-power) @ (weights * z)) * np.exp((context - 1) * np.log1p(-lost)))
    return total * (u[1] - u[0])


@pytest.mark.parametrize(("a", "context"), [(0.2, 3), (1.0, 100), (2.5, 100), (4.0, 10), (3.0, 10_000), (6.0, 100_000)])
def test_steins_lemma(a, context):
    r = softmax_moments(np.array([a]), context).concentration[0]
    m = first_moment(a, context)
    # As a statement about R, which may be much smaller than 1.
    assert 1 - m / a == pytest.approx(r, rel=1e-7)


@pytest.mark.parametrize(("a", "context"), [(0.7, 4), (1.0, 100), (2.5, 100), (6.0, 30)])
def test_monte_carlo(a, context):
    z = np.random.default_rng(0).normal(size=(20_000, context))
    p = np.exp(a * (z - z.max(axis=1, keepdims=True)))
    p /= p.sum(axis=1, keepdims=True)
    exact = softmax_moments(np.array([a]), context)
    for draws, value in ((np.sum(p**2, axis=1), exact.concentration[0]), (np.sum(p * z, axis=1) ** 2, exact.second[0])):
        # Eight numbers: five standard errors by chance have probability 5e-6.
        assert abs(draws.mean() - value) < 5 * draws.std() / np.sqrt(len(draws))


def test_recorded_values():
    r, t = softmax_moments(np.array([1.0, 2.5]), 100)
    np.testing.assert_allclose(r, [0.02554, 0.2065], rtol=0, atol=5e-5)
    assert t[0] == pytest.approx(0.9955, abs=5e-5)
    deep = softmax_moments(np.array([10.0, 20.0]), 100).concentration
    np.testing.assert_allclose(deep, [0.7518, 0.8749], rtol=0, atol=5e-5)
    assert softmax_moments(np.array([10.0]), 1000).concentration[0] == pytest.approx(0.6795, abs=5e-5)
    # Far in the random-energy regime.
    assert softmax_moments(np.array([3.0]), 10_000).concentration[0] == pytest.approx(0.053, abs=5e-4)


@given(a=st.floats(0.0, 8.0), context=st.integers(1, 10**6))
@settings(max_examples=60)
def test_bounds(a, context):
    r, t = (found[0] for found in softmax_moments(np.array([a]), context))
    slack = 1e-9
    assert 1 / context * (1 - slack) <= r <= 1 + slack
    # Jensen's inequality, and (Σ p z)² is at most Σ p z², at most the mean of the largest square.
    assert (a * (1 - r)) ** 2 <= t * (1 + 1e-7)
    assert t <= 2 * np.log(2 * context) + 2


def test_limits():
    alike = softmax_moments(np.zeros(1), 7)
    assert alike.concentration[0] == alike.second[0] == 1 / 7
    one = softmax_moments(np.array([0.0, 1e-6, 0.5, 3.0]), 1)
    np.testing.assert_allclose(np.stack(one), 1.0, rtol=1e-9)
    # R is even in a, so it leaves 1/L as the square.
    tiny = softmax_moments(np.array([1e-3, 2e-3]), 50).concentration - 1 / 50
    assert tiny[1] / tiny[0] == pytest.approx(4, rel=1e-4)
    # The exponential regime, and hardmax: the second moment of the largest of three.
    assert softmax_moments(np.array([0.3]), 10**6).concentration[0] == pytest.approx(np.exp(0.09) / 1e6, rel=1e-5)
    z = ndtri((np.arange(200_000) + 0.5) / 200_000)
    largest = np.mean(3 * z**2 * ((np.arange(200_000) + 0.5) / 200_000) ** 2)
    assert softmax_moments(np.array([200.0]), 3).second[0] == pytest.approx(largest, rel=1e-3)


def test_bad_input():
    with pytest.raises(InvalidInput, match="context is 0"):
        softmax_moments(np.ones(1), 0)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(InvalidInput, match="sharpness"):
            softmax_moments(np.array([bad]), 5)
