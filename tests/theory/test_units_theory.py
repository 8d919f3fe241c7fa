"""Networks of units in closed form, against their flow integrated by SciPy."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell.theory import units

CROSS = np.array([[0.9, 0.1, 0.0], [-0.2, 0.4, 0.3]])


def linear_flow(cross, outer, inner, times):
    """The loss above its least, of all units together."""
    shapes = outer.size, (outer.shape, inner.shape)

    def field(_, state):
        v, u = (part.reshape(shape) for part, shape in zip(np.split(state, [shapes[0]]), shapes[1], strict=True))
        residual = cross - v.T @ u
        return np.concatenate([(u @ residual.T).ravel(), (v @ residual).ravel()])

    start = np.concatenate([outer.ravel(), inner.ravel()])
    run = solve_ivp(field, (0, times[-1]), start, "DOP853", times, rtol=1e-12, atol=1e-16)
    ends = (np.split(state, [shapes[0]]) for state in run.y.T)
    return np.array([np.sum((cross - v.reshape(shapes[1][0]).T @ u.reshape(shapes[1][1])) ** 2) for v, u in ends])


def weights(size, seed=0, count=12):
    rng = np.random.default_rng(seed)
    return size * rng.normal(size=(count, 2)), size * rng.normal(size=(count, 3))


@pytest.mark.parametrize("size", [1e-4, 1e-6])
def test_times_of_directions(size):
    sizes = np.linalg.svd(CROSS, compute_uv=False)
    times = units.direction_times(CROSS, *weights(size))
    around = times[:, None] + np.linspace(-0.5, 0.5, 2001)
    levels = np.array([np.sum(sizes**2), sizes[1] ** 2, 0.0])
    for k in range(2):
        loss = linear_flow(CROSS, *weights(size), around[k])
        measured = np.interp(-(levels[k] + levels[k + 1]) / 2, -loss, around[k])
        # At the first drop the second mode has grown to size^(1 - s2/s1), and enters the loss squared.
        assert abs(times[k] - measured) < 20 * size ** (2 * (1 - sizes[1] / sizes[0])) + 1e-6


@pytest.mark.parametrize("size", [1e-2, 1e-4])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_the_whole_course_of_small_weights(size, count):
    times = np.linspace(0.5, 60.0, 200)
    course = units.riccati_course(CROSS, *weights(size, count=count), times)
    loss = linear_flow(CROSS, *weights(size, count=count), times)
    # The imbalance, of second order.
    np.testing.assert_allclose(course.loss, loss, rtol=0, atol=30 * count * size**2 * np.sum(CROSS**2))


def test_the_whole_course_of_balanced_weights_of_any_size():
    rng = np.random.default_rng(1)
    hidden = np.linalg.qr(rng.normal(size=(6, 3)))[0] * [0.7, 0.2, 0.4]
    inner = hidden @ np.linalg.qr(rng.normal(size=(3, 3)))[0].T
    outer = hidden[:, :2] @ np.eye(2)
    hidden[:, 2], inner = 0.0, hidden[:, :2] @ np.linalg.qr(rng.normal(size=(3, 2)))[0].T
    np.testing.assert_allclose(inner @ inner.T, outer @ outer.T, atol=1e-15)  # balanced
    times = np.linspace(0.1, 20.0, 50)
    course = units.riccati_course(CROSS, outer, inner, times)
    # The solver's 1e-12 a step.
    np.testing.assert_allclose(course.loss, linear_flow(CROSS, outer, inner, times), rtol=0, atol=1e-9)
    far = units.riccati_course(CROSS, outer, inner, np.array([300.0]))
    np.testing.assert_allclose(far.maps[0], CROSS, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spectrum", [[0.5, 0.3, -0.4], [0.5, 0.2, 0.1], [0.2, -0.2]])
def test_blow_up_times(spectrum):
    spectrum, rng = np.array(spectrum), np.random.default_rng(2)
    outer, inner = rng.normal(size=30), rng.normal(size=(30, spectrum.size))
    times = units.blow_up_time(spectrum, outer, inner)

    def field(_, state):
        return np.concatenate([[spectrum @ state[1:] ** 2], 2 * state[0] * spectrum * state[1:]])

    def large(_, state):
        return abs(state[0]) - 1e6

    large.terminal = True
    for time, v, u in zip(times, outer, inner, strict=True):
        run = solve_ivp(field, (0, 1e3), np.array([v, *u]), "DOP853", rtol=1e-12, atol=1e-14, events=large)
        if np.isinf(time):
            assert run.t[-1] == 1e3
            continue
        # From there it grows along one direction, by 2σ v².
        rest = 1 / (2 * np.abs(spectrum[np.argmax(np.abs(run.y[1:, -1]))]) * 1e6)
        assert run.t[-1] + rest == pytest.approx(time, rel=1e-9)
    assert np.isinf(times).any() == bool(np.all(spectrum > 0))


def test_a_unit_that_never_grows():
    """All of one sign, with v(0) < 0 and 2v(0)² > |u(0)|²: for three directions 15.2 % of Gaussian units."""
    rng = np.random.default_rng(3)
    outer, inner = rng.normal(size=4000), rng.normal(size=(4000, 3))
    never = np.isinf(units.blow_up_time(np.array([0.5, 0.3, 0.1]), outer, inner))
    np.testing.assert_array_equal(never, (outer < 0) & (2 * outer**2 > np.sum(inner**2, axis=1)))
