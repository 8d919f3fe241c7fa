"""Warm-up, emergence, and the end of the flow, each against the flow itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import softmax


def crossing(times, values, level):
    """The first time at which a rising curve reaches a level."""
    after = int(np.argmax(values >= level))
    assert values[after] >= level > values[after - 1]
    share = (level - values[after - 1]) / (values[after] - values[after - 1])
    return times[after - 1] + share * (times[after] - times[after - 1])


@pytest.mark.parametrize(
    ("dim", "embedding", "context", "heads"),
    [(10, 30, 100, 1), (10, 30, 100, 3), (30, 30, 1000, 1), (20, 20, 300, 3), (10, 10, 1000, 1)],
)
@pytest.mark.parametrize("off_ray", [1.0, 0.1, 10.0])
def test_small_weights_emerge_at_the_time_predicted(make_multi_task, dim, embedding, context, heads, off_ray):
    task = make_multi_task([dim], 0.7, context=context, noise=0.5)
    omega = 1e-4 * dim**-0.5
    options = {"embedding": embedding}
    ratio = off_ray * softmax.warm_up(task, heads=heads, **options).ratio
    mu = ratio * omega
    predicted = softmax.emergence_time(task, np.array([omega]), mu, heads=heads, **options)[0]
    if off_ray == 1:
        on_ray = softmax.emergence_time(task, np.array([omega]), heads=heads, **options)[0]
        assert predicted == pytest.approx(on_ray, rel=1e-12)
    times = np.linspace(0.9, 1.1, 2001) * predicted
    course = softmax.spectral_flow(task, np.full((heads, 1), omega), np.full((heads, 1), mu[0]), times, **options)
    half = crossing(times, np.sum(course.omega * course.mu, axis=1)[:, 0], 0.5)
    # Emergence takes its own time, which does not depend on the start.
    width = softmax.loss_drop_width(task, **options)[0] + softmax.omega_climb_width(task, **options)[0]
    assert abs(half - predicted) < width < 0.05 * predicted


@given(data=st.data(), heads=st.integers(1, 4), start=st.floats(-3, 3), steps=st.floats(0.05, 0.95))
@settings(max_examples=20)
def test_the_path_off_the_ray_solves_its_equations(multi_tasks, data, heads, start, steps):
    task = data.draw(multi_tasks)
    found, ray = softmax.task_numbers(task), softmax.warm_up(task, heads=heads)
    if abs(start) < 0.01:
        return
    omega = np.full(len(task.dims), 1e-3)
    first = ray.ratio * np.exp(start)
    last = ray.ratio * np.exp(start * (1 - steps))
    path = softmax.warm_up_path(task, omega, first * omega, np.stack([first, last]), heads=heads)
    np.testing.assert_allclose(path.time[0], 0, rtol=0, atol=1e-9 * path.time[1].max())
    scores, values = 4 * sum(task.dims) ** -0.5, 4.0
    for i in range(len(task.dims)):
        a, b = scores * found.strengths[i], values * found.signal[i]

        def field(_, state, a=a, b=b, i=i):
            w, m = state
            return [a * w * m, b * m * (w - heads * found.phi[i] / found.context * m)]

        span = (0.0, float(path.time[1, i]))
        end = solve_ivp(field, span, [omega[i], first[i] * omega[i]], "LSODA", rtol=1e-10, atol=1e-16).y[:, -1]
        np.testing.assert_allclose([path.omega[1, i], path.mu[1, i]], end, rtol=1e-6)


def test_unequal_heads_emerge_between(make_multi_task):
    task = make_multi_task([6, 10, 14], [2.0, 1.0, 0.5], noise=2)
    omega = np.full((4, 3), 2e-4)
    omega[range(3), range(3)] *= 1.5
    ratio = softmax.warm_up(task, heads=4).ratio
    mu = np.tile(ratio * 2e-4, (4, 1))
    early, late = softmax.emergence_bracket(task, omega.max(axis=0), mu.max(axis=0), heads=4)
    times = np.linspace(0, 1.1 * late.max(), 4001)
    course = softmax.spectral_flow(task, omega, mu, times)
    together = np.sum(course.omega * course.mu, axis=1)
    measured = np.array([crossing(times, together[:, i], 0.5) for i in range(3)])
    assert np.all(early < measured) and np.all(measured < late)
    assert list(np.argsort(measured)) == list(np.argsort(early))


def ray_course(task, times, omega, **options):
    start = np.array([omega])
    return softmax.single_head_course(task, start, softmax.warm_up(task, **options).ratio * start, times, **options)


@pytest.mark.parametrize(("dim", "embedding", "context"), [(10, 30, 100), (20, 40, 100), (10, 30, 50), (40, 100, 400)])
def test_width_of_the_loss_drop(make_multi_task, dim, embedding, context):
    task = make_multi_task([dim], context=context)
    assert softmax.mu_lag(task, embedding=embedding)[0] < 3
    times = np.linspace(0, 60, 30_001)
    course = ray_course(task, times, 0.01, embedding=embedding)
    reached = (course.omega * course.mu)[:, 0]
    limit = 1 / (1 + softmax.task_numbers(task).rho[0])
    width = crossing(times, reached, 0.9 * limit) - crossing(times, reached, 0.1 * limit)
    # A law of scaling, right within a fifth.
    assert width == pytest.approx(softmax.loss_drop_width(task, embedding=embedding)[0], rel=0.2)


def test_width_fails_where_mu_lags_far(make_multi_task):
    task = make_multi_task([10], context=1600)
    assert softmax.mu_lag(task, embedding=30)[0] == pytest.approx(29, abs=0.51)
    assert softmax.loss_drop_width(task, embedding=30)[0] == pytest.approx(0.27, abs=0.0051)
    times = np.linspace(0, 60, 60_001)
    course = ray_course(task, times, 0.01, embedding=30)
    reached = (course.omega * course.mu)[:, 0] * (1 + softmax.task_numbers(task).rho[0])
    assert crossing(times, reached, 0.9) - crossing(times, reached, 0.1) == pytest.approx(0.69, abs=0.03)


@pytest.mark.parametrize(
    ("dim", "embedding", "context", "measured", "formula"),
    [(10, 30, 400, 5.1, 5.8), (10, 30, 1600, 18.0, 23.1), (40, 100, 1600, 4.5, 5.3)],
)
def test_width_of_the_climb(make_multi_task, dim, embedding, context, measured, formula):
    task = make_multi_task([dim], context=context)
    assert softmax.omega_climb_width(task, embedding=embedding)[0] == pytest.approx(formula, abs=0.051)
    times = np.linspace(0, 100, 20_001)
    size = ray_course(task, times, 0.01, embedding=embedding).omega[:, 0] * np.sqrt(dim)
    # The start is not recorded, and shifts the climb by a few per cent.
    assert crossing(times, size, 0.8) - crossing(times, size, 0.2) == pytest.approx(measured, rel=0.03)


@given(data=st.data())
@settings(max_examples=20)
def test_late_rates_are_eigenvalues(multi_tasks, data):
    """Of the derivative of the flow of (log ω, log μ) about its limit."""
    task = data.draw(multi_tasks)
    limit = softmax.flow_limit(task)
    rates = softmax.late_rates(task)
    step = 1e-5
    for i in range(len(task.dims)):

        def velocity(shift, i=i):
            omega, mu = (np.diag(weights) for weights in limit)
            omega[i, i] *= np.exp(shift[0])
            mu[i, i] *= np.exp(shift[1])
            found = softmax.spectral_velocity(task, omega, mu)
            return np.array([found.omega[i, i] / omega[i, i], found.mu[i, i] / mu[i, i]])

        jacobian = np.stack([(velocity(e) - velocity(-e)) / (2 * step) for e in step * np.eye(2)], axis=1)
        slow, fast = np.sort(-np.linalg.eigvals(jacobian).real)
        assert fast == pytest.approx(rates.fast[i], rel=1e-6)
        # Differences leave 1e-10 of the largest entry, and the fast rate may be far above the slow.
        assert slow == pytest.approx(rates.slow[i], rel=1e-6, abs=1e-7 * fast)
    assert np.all(rates.slow < rates.slow_if_mu_is_fast * (1 + 1e-12))


def test_losers_die_exponentially(make_multi_task):
    task = make_multi_task([10, 6], [1.0, 0.5], noise=0.5)
    limit = softmax.flow_limit(task)
    parts = np.array([[0.2, 1.7], [0.9, 0.5], [1.0, 1.0]])
    for part, rate in zip(parts, softmax.losing_head_rate(task, parts), strict=True):
        for i in range(2):
            # A third head, too weak to matter, with scores on one task.
            omega, mu = (np.concatenate([np.diag(weights), np.zeros((1, 2))]) for weights in limit)
            omega[2, i], mu[2, i] = part[i] * limit.omega[i], 1e-9
            found = softmax.spectral_velocity(task, omega, mu).mu[2, i] / 1e-9
            # The weak head adds 1e-9 of its own.
            assert found == pytest.approx(rate[i], rel=1e-6, abs=1e-6)
    x = np.linspace(0.01, 3, 100)
    rates = softmax.losing_head_rate(task, np.stack([x, x], axis=1))
    assert np.all(rates <= 0)


def test_what_is_off_task_fades_as_a_power(make_multi_task):
    task = make_multi_task([10] * 3)
    course = softmax.spectral_flow(
        task, 0.004 + 0.004 * np.eye(3), np.full((3, 3), 0.3), np.array([40.0, 60.0, 300.0, 3000.0])
    )
    fading = softmax.off_task_fading(task)
    np.testing.assert_allclose(fading, 1.227, rtol=0, atol=5.1e-4)
    inverse = 1 / course.omega[:, 0, 1]
    # Winners settle at rate 0.67; what remains is second order in the small ω.
    assert (inverse[3] - inverse[2]) / 2700 == pytest.approx(fading[0], rel=1e-4)
    excess = course.loss.sum(axis=1) - softmax.flow_limit_loss(task).sum()
    np.testing.assert_allclose(excess[1:] / excess[0], (inverse[0] / inverse[1:]) ** 2, rtol=5e-3)


def test_bad_input(make_multi_task):
    task = make_multi_task([3, 4])
    with pytest.raises(InvalidInput, match="above 0"):
        softmax.emergence_time(task, np.array([0.1, 0.0]))
    with pytest.raises(InvalidInput, match="heads"):
        softmax.emergence_bracket(task, np.full(2, 0.1), heads=0)
    with pytest.raises(InvalidInput, match="between"):
        softmax.warm_up_path(task, np.full(2, 0.1), np.full(2, 0.1), np.full((1, 2), 1e9))
