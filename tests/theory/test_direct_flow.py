"""The flow of ω and μ themselves: against differences of the loss, and its three stages against the flow."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import MultiRegression, softmax

PAPER = MultiRegression((5,), (0.2,), 0.1, 40)
C = 1 / (1 + 5.5 / 40)


def test_the_velocity_is_minus_half_the_gradient():
    rng = np.random.default_rng(0)
    task = MultiRegression((2, 5), (0.7, 0.3), 0.4, 12)
    weights = 0.5 * rng.normal(size=(2, 3, 2))
    found = np.stack(softmax.direct_velocity(task, *weights))
    for place in np.ndindex(weights.shape):
        step = np.zeros_like(weights)
        step[place] = 1e-5
        losses = [softmax.spectral_loss(task, *(weights + sign * step)).sum() for sign in (1, -1)]
        np.testing.assert_allclose(found[place], -(losses[0] - losses[1]) / 4e-5, rtol=1e-6, atol=1e-8)


def pair_course(times):
    initial = np.array([[0.001], [-0.001]])
    return softmax.direct_flow(PAPER, initial, initial, np.asarray(times, dtype=float))


def test_the_course_of_a_symmetric_pair():
    """Recorded values of an independent integration, and read off published curves: μ and ω at t = 12, 30 and 1e4."""
    times = np.concatenate([np.arange(0, 31, 0.01), [1e4, 1e5, 1e6]])
    course = pair_course(times)
    omega, mu = course.omega[:, 0, 0], course.mu[:, 0, 0]
    share = 2 * omega * mu
    half = np.interp(0.5, share[:900], times[:900])
    np.testing.assert_allclose(half, 6.658, atol=2e-3)
    law = softmax.direct_emergence_time(PAPER, np.array([[0.001], [-0.001]]), np.array([[0.001], [-0.001]]))
    np.testing.assert_allclose(law, [6.561], atol=1e-3)
    np.testing.assert_allclose(omega.max(), 0.5763, atol=6e-5)
    np.testing.assert_allclose(times[np.argmax(omega)], 7.69, atol=0.011)
    np.testing.assert_allclose([mu[1200], omega[1200], mu[1200] / omega[1200]], [0.7967, 0.5043, 1.580], atol=6e-4)
    np.testing.assert_allclose([mu[3000] * omega[3000], mu[3000]], [0.4239, 1.0655], atol=6e-5)
    np.testing.assert_allclose([mu[-3], omega[-3]], [3.1510, 0.13942], rtol=1e-4)
    np.testing.assert_allclose(omega[-3:], [0.13942, 0.094864, 0.064612], atol=6e-6)
    # The law leaves out the next order in a, a few times a², which is 0.0095 to 0.0004 here.
    gaps = omega[-3:] / softmax.valley_omega(PAPER, times[-3:])[:, 0] - 1
    assert np.all(np.abs(gaps) < 0.3 * (5 * omega[-3:] ** 2) ** 2)
    slope = (omega[-1] ** -6 - omega[-2] ** -6) / (1e6 - 1e5)
    np.testing.assert_allclose(slope, 4 * 0.1375 * 25, rtol=1e-3)


@pytest.mark.parametrize("signs", [[1, 1, -1, -1], [1, 1, 1, -1]])
def test_the_valley_of_four_heads(signs):
    """The harmonic mean of heads of a sign sets the pace, values add up to zero, and differences are conserved."""
    size = 0.01 * np.array([1.0, 1.3, 0.8, 1.1])[:, None]
    initial = size * np.array(signs)[:, None]
    course = softmax.direct_flow(PAPER, initial, initial, np.array([3e3, 3e4, 1e5]))
    positive = signs.count(1)
    omega, mu = np.abs(course.omega[..., 0]), course.mu[..., 0]
    law = softmax.valley_omega(PAPER, np.array([1e5]), positive=positive, negative=4 - positive)
    np.testing.assert_allclose(omega[-1], law[0, 0], rtol=3e-3)
    np.testing.assert_allclose(mu[-1] @ course.omega[-1, :, 0], C, rtol=2e-3)
    np.testing.assert_allclose(mu[:, 0] - mu[:, 1], mu[-1, 0] - mu[-1, 1], atol=1e-3)
    assert abs(mu[-1].sum()) < 1e-3
    spread = np.ptp(omega[:, :positive], axis=1) / omega[:, 0]
    assert spread[0] > spread[1] > spread[2] and spread[2] < 2e-4


def random_runs(heads, scale, count=12):
    rng = np.random.default_rng((heads, 21))
    for _ in range(count):
        yield scale * rng.normal(size=(2, heads, 1))


@pytest.mark.parametrize(("heads", "expected_late"), [(2, 0.094), (4, 0.050), (8, 0.041)])
def test_emergence_from_random_weights(heads, expected_late):
    """Always late, on average by what was recorded over 12 other draws; most signs are those of ω + μ initially."""
    late, signs, both = [], [], 0
    for omega, mu in random_runs(heads, 0.01):
        expected = float(softmax.direct_emergence_time(PAPER, omega, mu)[0])
        times = np.append(np.arange(0, 2 * expected, 0.01), 1e3)
        course = softmax.direct_flow(PAPER, omega, mu, times)
        share = np.sum(course.omega * course.mu, axis=(1, 2))
        late.append(times[np.argmax(share >= 0.5)] / expected - 1)
        early, final = np.sign(omega + mu)[:, 0], np.sign(course.omega[-1, :, 0])
        signs.append(np.mean(early == final))
        both += np.ptp(final) > 0
        if np.ptp(final) == 0:
            gamma = np.e * 5.5 / 40
            np.testing.assert_allclose(course.loss[-1], gamma / (1 + gamma), rtol=1e-3)
    assert 0 < min(late)
    # Three standard errors of the difference of two means of 12.
    assert abs(np.mean(late) - expected_late) < 3 * (2 / 12) ** 0.5 * np.std(late, ddof=1)
    assert np.mean(signs) >= 0.85
    chance = softmax.both_signs_probability(heads)
    assert abs(both - 12 * chance) <= max(1.0, 4 * (12 * chance * (1 - chance)) ** 0.5)


@pytest.mark.parametrize("signs", [[1], [1, -1]])
def test_dummy_heads_grow_as_predicted(signs):
    """Begun far below a pair and followed by another solver: one alone, and two of opposite signs."""
    course = pair_course([1e4])
    begun = 1e-9 * np.array(signs)[:, None]
    start = np.concatenate([course.omega[0], begun, course.mu[0], begun]).ravel()

    def field(_, state):
        omega, mu = state.reshape(2, -1, 1)
        return np.concatenate(softmax.direct_velocity(PAPER, omega, mu)).ravel()

    path = solve_ivp(field, (0, 4e4), start, method="LSODA", t_eval=[1e4, 4e4], rtol=1e-9, atol=1e-15).y
    # The decaying half of the beginning has died out by t = 2e4; the heads are still a hundred times below the others.
    growth = softmax.dummy_growth(PAPER, path[:1, 0], path[:1, 1], dummies=len(signs))
    assert path[2, 1] < 0.02 * path[0, 1]
    np.testing.assert_allclose(np.log(path[2, 1] / path[2, 0]), growth[0], rtol=0.01)


def test_what_has_no_answer_is_refused():
    with pytest.raises(InvalidInput, match="above 0 and below 0.5"):
        softmax.direct_emergence_time(PAPER, np.array([[0.1]]), np.array([[-0.1]]))
    with pytest.raises(InvalidInput, match="above 0"):
        softmax.valley_omega(PAPER, np.array([0.0]))
    with pytest.raises(InvalidInput, match="above 0"):
        softmax.dummy_growth(PAPER, np.array([0.1]), np.array([0.0]))
