"""Nonlinear targets: recorded values, samples, and the linear case."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.theory import softmax


def tanh8(s):
    return softmax.hermite_target(softmax.hermite_coefficients(lambda t: np.tanh(2 * t), 8))(s)


def sin8(s):
    return softmax.hermite_target(softmax.hermite_coefficients(lambda t: np.sin(2 * t), 8))(s)


# Target; leading order, first order, and a sampled loss with its standard error, at d = 50, L = 1000, noise 0.1.
# The last two are the expansions to degree 8 of tanh(2s) and sin(2s).
RECORDED = {
    "linear": (lambda s: s, 0.1301, 0.1353, 0.1326, 0.0016),
    "second": (lambda s: (s**2 - 1) / 2**0.5, 1.113, 0.912, 0.911, 0.008),
    "third": (lambda s: (s**3 - 3 * s) / 6**0.5, 1.113, 1.112, 1.103, 0.013),
    "first and third": (lambda s: 0.8 * s + 0.6 * (s**3 - 3 * s) / 6**0.5, 0.484, 0.495, 0.495, 0.011),
    "first and second": (lambda s: (s + (s**2 - 1) / 2**0.5) / 2**0.5, 0.622, 0.524, 0.525, 0.009),
    "constant": (lambda s: np.ones_like(s), 26.5472, 26.5474, 26.5473, 1e-4),
    "tanh": (tanh8, 0.1755, 0.1747, 0.1720, 0.0019),
    "sine": (sin8, 0.4726, 0.4695, 0.4638, 0.0045),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name):
    target, leading, first_order, sampled, error = RECORDED[name]
    head = softmax.linear_head(50, 1000, noise=0.1)
    coefficients = softmax.hermite_coefficients(target, 8)
    digits = 4 if leading < 0.2 or name in ("constant", "sine") else 3
    found = softmax.nonlinear_leading_loss(coefficients, 50, 1000, head, noise=0.1)
    assert found == pytest.approx(leading, abs=0.51 * 10.0**-digits)
    found = softmax.nonlinear_loss(target, 50, 1000, head, noise=0.1)
    assert found == pytest.approx(first_order, abs=0.51 * 10.0**-digits)
    assert abs(found - sampled) < 3 * error


@pytest.mark.parametrize("target", [np.tanh, lambda s: s + 0.5 * s**2])
def test_against_samples(target):
    """Softmax attention with these weights on data, at a length where second orders are small."""
    dim, context, noise = 12, 1500, 0.2
    head = softmax.HeadWeights(0.4 * dim**-0.5, 2.0)
    rng = np.random.default_rng(0)
    losses = np.empty(3000)
    for sample in range(losses.size):
        x, q = rng.normal(size=(context, dim)), rng.normal(size=dim)
        y = target(x[:, 0]) + np.sqrt(noise) * rng.normal(size=context)
        scores = head.omega * x @ q
        p = np.exp(scores - scores.max())
        losses[sample] = (target(q[0]) - head.mu * (p @ y) / p.sum()) ** 2
    error = losses.std() / losses.size**0.5
    assert abs(losses.mean() - softmax.nonlinear_loss(target, dim, context, head, noise=noise)) < 4 * error


@given(dim=st.integers(3, 200), context=st.integers(10, 5000), noise=st.floats(0, 3), omega=st.floats(0.1, 1.0))
@settings(max_examples=40)
def test_a_linear_target_is_a_task(make_multi_task, dim, context, noise, omega):
    """u·x with a random u is one task of strength 1/d: two derivations of one loss."""
    head = softmax.HeadWeights(omega * dim**-0.5, 0.7 * dim**0.5)
    task = make_multi_task([dim], 1 / dim, context=context, noise=noise)
    expected = softmax.first_order_loss(task, np.array([[head.omega]]), np.array([[head.mu]]))[0]
    assert softmax.nonlinear_loss(lambda s: s, dim, context, head, noise=noise) == pytest.approx(expected, rel=1e-9)
    best = softmax.flow_limit(task)
    known = softmax.linear_head(dim, context, noise)
    assert (known.omega, known.mu) == pytest.approx((best.omega[0], best.mu[0]), rel=1e-12)
    leading = softmax.nonlinear_leading_loss(np.array([0.0, 1.0]), dim, context, known, noise=noise)
    assert leading == pytest.approx(softmax.flow_limit_loss(task)[0], rel=1e-12)


@given(coefficients=st.lists(st.floats(-2, 2), min_size=1, max_size=9))
def test_projection_is_the_inverse(coefficients):
    given_ones = np.array(coefficients)
    found = softmax.hermite_coefficients(softmax.hermite_target(given_ones), given_ones.size + 3)
    np.testing.assert_allclose(found[: given_ones.size], given_ones, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found[given_ones.size :], 0, rtol=0, atol=1e-11)


def test_second_degree_as_signal():
    """1 - 2c/√d + 1.5 c²/d, without noise and for an endless context."""
    dim, c = 40, 0.8
    head = softmax.HeadWeights(dim**-0.5, c * dim**0.5)
    found = softmax.nonlinear_loss(lambda s: (s**2 - 1) / 2**0.5, dim, 10**12, head)
    assert found == pytest.approx(1 - 2 * c / dim**0.5 + 1.5 * c**2 / dim, rel=1e-8)


def test_bad_input():
    with pytest.raises(InvalidInput, match="dim above 2"):
        softmax.nonlinear_loss(lambda s: s, 2, 100, softmax.linear_head(2, 100))
    with pytest.raises(InvalidInput, match="degree"):
        softmax.hermite_coefficients(np.tanh, -1)
