"""One aligned head: the closed form of its time against quadrature and against the flow."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad, solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import linear

EPS = np.finfo(float).eps


@given(
    variances=st.lists(st.floats(0.1, 2.0), min_size=1, max_size=4),
    noise=st.floats(0.0, 2.0),
    start=st.floats(1e-8, 0.1),
    fraction=st.floats(0.5, 0.999),
)
def test_time_against_quadrature(make_task, variances, noise, start, fraction):
    task = make_task(variances, noise=noise, rotation=1)
    component = len(variances) - 1
    found = linear.modes(task)
    drive, hold = found.driving[component], found.curvature[component]
    value = fraction * linear.aligned_end(task, component)
    # In y = ln v, dt = dy / (drive v - hold v^4), tame over pieces no longer than one.
    ends = np.linspace(np.log(start), np.log(value), 2 + int(abs(np.log(value / start))))

    def integrand(y):
        return 1 / (drive * np.exp(y) - hold * np.exp(4 * y))

    expected = sum(quad(integrand, *piece, epsrel=1e-11, epsabs=0)[0] for piece in itertools.pairwise(ends))
    time = linear.aligned_time(task, component, start, np.array([value]))[0]
    assert time == pytest.approx(expected, rel=1e-10)


def test_value_against_the_flow_of_the_weights(make_task):
    task = make_task([0.5, 0.3, 0.2], [1.0, 2.0, 0.5], lengths=(5, 20), noise=0.4)
    # Along the axes, where zeros stay zeros: off them rounding grows, and the head turns to a stronger mode.
    cross, second, lam = linear.moments(task).cross, linear.moments(task).second, task.covariance

    def field(_, state):
        v, k, q = state[0], state[1:4], state[4:]
        g = (cross - second @ np.outer(v * k, q)) @ lam
        return np.concatenate([[k @ g @ q], v * g @ q, v * g.T @ k])

    for component in range(3):
        e = linear.modes(task).directions[:, component]
        start = 0.05
        times = np.linspace(0, 1.5 * linear.new_head_time(task, component, start), 60)
        state = np.concatenate([[start], start * e, start * e])
        run = solve_ivp(field, (0, times[-1]), state, method="LSODA", t_eval=times, rtol=1e-11, atol=1e-13)
        value = linear.aligned_value(task, component, start, times)
        # The hyperbola turns a relative error of v into a shift in time, so multiplies it by v/start at most.
        np.testing.assert_allclose(value, run.y[0], rtol=1e-11 * 300 * value.max() / start)


@given(start=st.floats(1e-8, 0.5), share=st.floats(0.0, 0.999))
def test_value_inverts_time(make_task, start, share):
    task = make_task([0.4, 0.3, 0.2, 0.1])
    end = linear.aligned_end(task, 1)
    value = np.array([start + share * (end - start)])
    time = linear.aligned_time(task, 1, start, value)
    # A time of about 1/start is known to EPS of itself, which the velocity turns into an error of v.
    speed = linear.modes(task).driving[1] * value**2
    allowed = 16 * EPS * (value + speed * (time + linear.new_head_time(task, 1, start)))
    assert abs(linear.aligned_value(task, 1, start, time) - value) < allowed


@given(start=st.floats(1e-8, 1e-2))
def test_escape_is_hyperbolic(make_task, start):
    task = make_task([0.4, 0.3, 0.2, 0.1])
    end = linear.aligned_end(task, 0)
    time = linear.aligned_time(task, 0, start, np.array([end / 2]))[0]
    # F(1/2) = -2 + 1/8 + ..., against 1/x0 = end/start.
    assert abs(time / linear.new_head_time(task, 0, start) - 1) < 2 * start / end


def test_the_end(make_task):
    task = make_task([0.4, 0.3, 0.2, 0.1])
    for component, lam in enumerate([0.4, 0.3, 0.2, 0.1]):
        end = (lam * (1 + (1 + 1 / lam) / 31)) ** (-1 / 3)
        assert linear.aligned_end(task, component) == pytest.approx(end, rel=1e-14)
        first_and_last = linear.aligned_value(task, component, 1e-3, np.array([0.0, 1e9]))
        assert first_and_last == pytest.approx([1e-3, end], rel=1e-14)


def test_refusals(make_task):
    task = make_task([0.4, 0.3])
    with pytest.raises(InvalidInput, match="never reached"):
        linear.aligned_time(task, 0, 0.1, np.array([5.0]))
    with pytest.raises(InvalidInput, match="below the end"):
        linear.aligned_value(task, 0, 5.0, np.array([1.0]))
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        linear.aligned_end(task, 2)
    with pytest.raises(InvalidInput, match="above 0"):
        linear.new_head_time(task, 0, 0.0)
