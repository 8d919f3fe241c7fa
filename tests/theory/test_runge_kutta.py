"""Explicit steps of many systems at once: their order, their dense output, and where functions cross zero."""

import numpy as np
from scipy.integrate import DOP853

from stepwell.theory._runge_kutta import SLOPES, DenseOutput, attempt, crossing, next_step


def pendulum(states, slopes):
    slopes[0], slopes[1] = states[1], -np.sin(states[0])


def one_step(step):
    """From several states, each with its own step."""
    states = np.random.default_rng(0).normal(size=(2, len(step)))
    slopes = np.empty((SLOPES, *states.shape))
    pendulum(states, slopes[0])
    return states, slopes, attempt(pendulum, states, slopes, step, np.ones_like(states), 1e-6)


def scipys(start, step):
    solver = DOP853(lambda _, y: np.array([y[1], -np.sin(y[0])]), 0.0, start, step, first_step=step, rtol=1e3, atol=1e3)
    solver.step()
    return solver


def test_a_step_is_that_of_scipy():
    step = np.array([0.1, 0.5, 1.0])
    states, slopes, tried = one_step(step)
    path = DenseOutput(pendulum, states, tried.states, slopes, step)
    for run, each in enumerate(step):
        solver = scipys(states[:, run], each)
        # Sums of a dozen terms of order one, in another order.
        np.testing.assert_allclose(tried.states[:, run], solver.y, rtol=0, atol=1e-14)
        for part in (0.0, 0.3, 1.0):
            np.testing.assert_allclose(path(np.full(3, part))[:, run], solver.dense_output()(part * each), atol=1e-14)


def test_the_error_of_a_step_decides_the_next():
    step = np.array([0.1, 1.0, 3.0])
    *_, tried = one_step(step)
    assert np.all(np.diff(tried.error) > 0) and tried.accepted[0] and not tried.accepted[2]
    after = next_step(step, tried.error)
    # The next error is about 0.9^8 of what is allowed, unless the change of the step is limited.
    np.testing.assert_allclose((after / step)[1:], np.clip(0.9 * tried.error[1:] ** (-1 / 8), 0.2, 5))
    np.testing.assert_array_equal(next_step(np.ones(3), np.array([0.0, np.nan, 1e30])), [5.0, 0.2, 0.2])


def test_crossings():
    where = np.array([1e-9, 0.3, 1.0 - 1e-9])
    for power in (1, 3, 9):

        def height(part, power=power):
            return part**power - where**power

        found = crossing(height, height(np.zeros(3)), height(np.ones(3)))
        assert np.all(np.abs(height(found)) <= 1e-12)
