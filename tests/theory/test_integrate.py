"""The stiff solver: closed forms, and an end to all work."""

import numpy as np
import pytest

from stepwell.theory._integrate import ABSOLUTE_TOLERANCE, IntegrationFailed, integrate


def test_a_logistic_course_at_the_times_asked_for():
    times = np.array([0.0, 1.0, 10.0, 40.0])
    path = integrate(lambda y: y * (1 - y), np.array([1e-6]), 40.0, times=times)
    exact = 1 / (1 + (1e6 - 1) * np.exp(-times))
    np.testing.assert_allclose(path.states[:, 0], exact, rtol=path.steps * ABSOLUTE_TOLERANCE)
    assert path.time == 40.0 and not path.crossed


def test_a_hyperbolic_escape_ends_at_the_event_with_its_digits():
    # y' = y^2 from w: at time 1/w - 1/y the solution is y. The last steps are shorter than the rounding of the time.
    for size in (1e-3, 1e-12, 1e-30):
        path = integrate(lambda y: y * y, np.array([size]), np.inf, event=lambda y: float(y[0]) - 0.5)
        assert path.crossed and path.time == pytest.approx(1 / size - 2, rel=path.steps * ABSOLUTE_TOLERANCE)
        np.testing.assert_allclose(path.state, 0.5, rtol=1e-12)


def test_a_stiff_decay_needs_few_steps():
    # Of three rates the slowest decides the time; LSODA's first guess at a step would be far too long for the fastest.
    rates = np.array([1.0, 1e-6, 1e-12])
    path = integrate(
        lambda y: -rates * (y - 1),
        np.array([1 + 1e-12, 1.0, 2.0]),
        1e12,
        jacobian=lambda _: -np.diag(rates),
        times=np.array([1e12]),
    )
    np.testing.assert_allclose(path.states[0], [1, 1, 1 + np.exp(-1)], rtol=path.steps * ABSOLUTE_TOLERANCE)
    assert path.steps < 2000


def test_work_without_end_is_given_up_and_says_where():
    with pytest.raises(IntegrationFailed, match=r"not followed beyond t/tau = .* since 100 steps"):
        integrate(lambda y: np.array([y[1], -y[0]]), np.array([0.0, 1.0]), 1e30, most=100)


def test_a_solution_that_leaves_the_numbers_says_where():
    with pytest.raises(IntegrationFailed, match="not followed beyond"):
        integrate(lambda y: y * y, np.array([1.0]), 2.0)
