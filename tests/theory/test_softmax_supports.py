"""Flat heads for tasks whose supports overlap: recorded optima of free heads, a search, and the closed form."""

import numpy as np
import pytest
from scipy.optimize import minimize

from stepwell._util.errors import InvalidInput
from stepwell.theory import MultiRegression, softmax


def indicators(*ranges, dim=6):
    return np.array([[start <= j < end for j in range(dim)] for start, end in ranges])


# d = 6, L = 48, λ = 1, noise a tenth of the signal: least leading-order losses with H = 2, 3, 4 heads, found before by
# a search over heads that need not be flat.
RECORDED = [
    (indicators((0, 4), (2, 6)), [0.9556, 0.6718, 0.6718], 3),
    (indicators((0, 3), (3, 6)), [0.7253, 0.3860, 0.3860], 3),
    (indicators((0, 4), (0, 4)), [0.6718, 0.6718, 0.6718], 2),
    (indicators((0, 3), (3, 6), (0, 6)), [1.4505, 1.1112, 1.1112], 3),
]


@pytest.mark.parametrize(("supports", "losses", "needed"), RECORDED)
def test_the_least_losses_with_two_to_four_heads(supports, losses, needed):
    assert softmax.heads_needed(supports) == needed
    noise = 0.1 * supports.sum(axis=1)
    for heads, loss in enumerate(losses, start=2):
        found = softmax.flat_heads_loss(supports, np.ones(len(supports)), context=48, heads=heads, noise=noise)
        np.testing.assert_allclose(found.sum(), loss, atol=1e-4)


def test_fewer_heads_against_a_search_over_free_heads():
    """Heads of any ω and μ, sharp or not, at most reach what flat ones do: supports, strengths and noise at random."""
    rng = np.random.default_rng(3)
    supports = np.array([[1, 1, 0, 0, 1], [0, 1, 1, 1, 0], [1, 0, 0, 1, 1]], bool)
    strengths, noise, length, heads = rng.uniform(0.5, 2, 3), rng.uniform(0, 1, 3), 60, 3
    signal = strengths * supports.sum(axis=1)

    def loss(flat):
        omega = flat.reshape(heads, 5)
        kernel = np.exp(omega @ omega.T) / length
        total = 0.0
        for i in range(3):
            own = omega[:, supports[i]]
            quadratic = strengths[i] * own @ own.T + (signal[i] + noise[i]) * kernel
            linear = strengths[i] * own.sum(axis=1)
            total += signal[i] - linear @ np.linalg.solve(quadratic, linear)
        return total

    least = min(minimize(loss, 0.1 * rng.normal(size=heads * 5)).fun for _ in range(10))
    flat = softmax.flat_heads_loss(supports, strengths, context=length, heads=heads, noise=noise).sum()
    np.testing.assert_allclose(least, flat, rtol=2e-3)
    assert least > flat * (1 - 1e-6)


def test_with_enough_heads_each_task_has_the_loss_of_debiased_descent_to_leading_order():
    supports = indicators((0, 4), (2, 6), dim=6)
    flat = softmax.flat_heads_loss(supports, np.full(2, 2.0), context=10**6, heads=3, noise=np.full(2, 0.4))
    exact = softmax.best_gradient_step(MultiRegression((4,), (2.0,), 0.4, 10**6)).loss
    gamma_over_next = 4 * 1.05 / (1 + 4 * 1.05)
    np.testing.assert_allclose(flat, exact[0] * gamma_over_next, rtol=1e-5)


def test_what_has_no_answer_is_refused():
    with pytest.raises(InvalidInput, match="without coordinates"):
        softmax.heads_needed(np.array([[True], [False]]))
    with pytest.raises(InvalidInput, match="heads"):
        softmax.flat_heads_loss(np.array([[True]]), np.ones(1), context=5, heads=1)
    with pytest.raises(InvalidInput, match="above 0"):
        softmax.flat_heads_loss(np.array([[True]]), np.zeros(1), context=5, heads=2)
