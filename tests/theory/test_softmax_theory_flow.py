"""The flow of all heads: its velocity against derivatives, its course against another solver and recorded values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.theory import softmax


def loss_of_factors(task, k, q, o, v, scale):
    """The spectral loss where every coordinate has its own eigenvalue s k q; k and q are (head, coordinate)."""
    found = softmax.task_numbers(task)
    block = np.repeat(np.arange(len(task.dims)), task.dims)
    omega, mu = scale * k * q, o * v
    miss = (1 - np.einsum("hj,hj->j", mu[:, block], omega)) ** 2
    overlap = np.exp(omega @ omega.T)
    bias = np.array([miss[block == i].sum() for i in range(len(task.dims))])
    variance = np.einsum("hi,hg,gi->i", mu, overlap, mu)
    return float(np.sum(found.strengths * bias + found.signal * found.phi / found.context * variance))


def slopes(function, at, step=1e-5):
    found = np.empty_like(at)
    for index in np.ndindex(at.shape):
        ahead, behind = at.copy(), at.copy()
        ahead[index] += step
        behind[index] -= step
        found[index] = (function(ahead) - function(behind)) / (2 * step)
    return found


@pytest.mark.parametrize("balanced", [True, False])
def test_velocity_is_that_of_the_factors(make_multi_task, balanced):
    task = make_multi_task([2, 3, 1, 4], [1.3, 0.4, 2.0, 0.7], context=30, noise=0.5)
    heads, scale, factor = 3, 0.37, 1.5
    rng = np.random.default_rng(0)
    k, o = rng.uniform(0.3, 1.2, size=(2, heads, 4))
    q, v = (k, o) if balanced else rng.uniform(0.3, 1.2, size=(2, heads, 4))
    block = np.repeat(np.arange(4), task.dims)
    weights = {"k": k[:, block], "q": q[:, block], "o": o, "v": v}

    def down(name):
        return (
            -factor / 2 * slopes(lambda at: loss_of_factors(task, **{**weights, name: at}, scale=scale), weights[name])
        )

    first = np.searchsorted(block, np.arange(4))
    omega_velocity = scale * (down("k") * weights["q"] + down("q") * weights["k"])[:, first]
    mu_velocity = down("o") * v + down("v") * o
    found = softmax.spectral_velocity(
        task,
        scale * k * q,
        o * v,
        omega_imbalance=scale * (k**2 - q**2),
        mu_imbalance=o**2 - v**2,
        loss_factor=factor,
        score_scale=scale,
    )
    # Central differences: rounding over the step, 1e-16/1e-5, of a loss of order ten.
    np.testing.assert_allclose(found.omega, omega_velocity, rtol=0, atol=1e-8 * np.abs(omega_velocity).max())
    np.testing.assert_allclose(found.mu, mu_velocity, rtol=0, atol=1e-8 * np.abs(mu_velocity).max())


@given(data=st.data(), heads=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_course_is_the_integral_of_the_velocity(multi_tasks, data, heads, seed):
    """Against another solver in ω and μ themselves; the loss never rises."""
    task = data.draw(multi_tasks)
    rng = np.random.default_rng(seed)
    size = 1 / np.sqrt(np.array(task.dims))
    omega, mu = rng.uniform(0.1, 0.7, size=(2, heads, len(task.dims)))
    omega, mu = omega * size / heads, mu / size / heads
    imbalances = {name: rng.uniform(-0.2, 0.2) * omega for name in ("omega_imbalance", "mu_imbalance")}
    if seed % 2:
        imbalances = {}
    rates = softmax.spectral_velocity(task, omega, mu, **imbalances)
    times = np.linspace(0, 1 / max(np.abs(rates.omega / omega).max(), np.abs(rates.mu / mu).max()), 5)

    def field(_, state):
        return np.concatenate(
            [part.ravel() for part in softmax.spectral_velocity(task, *state.reshape(2, *omega.shape), **imbalances)]
        )

    other = solve_ivp(field, (0, times[-1]), np.stack([omega, mu]).ravel(), "DOP853", times, rtol=1e-10, atol=1e-14)
    course = softmax.spectral_flow(task, omega, mu, times, **imbalances)
    expected = other.y.T.reshape(len(times), 2, *omega.shape)
    np.testing.assert_allclose(course.omega, expected[:, 0], rtol=1e-7, atol=1e-9 * omega.max())
    np.testing.assert_allclose(course.mu, expected[:, 1], rtol=1e-7, atol=1e-9 * mu.max())
    np.testing.assert_allclose(course.loss, softmax.spectral_loss(task, course.omega, course.mu), rtol=1e-12)
    assert np.all(np.diff(course.loss.sum(axis=1)) <= 1e-12 * course.loss[0].sum())


def test_imbalance_lets_weights_change_sign(make_multi_task):
    task = make_multi_task([5], context=50)
    start = np.array([[-0.01]]), np.array([[0.5]])
    times = np.array([0.0, 30.0])
    kept = softmax.spectral_flow(task, *start, times)
    freed = softmax.spectral_flow(task, *start, times, omega_imbalance=np.array([[0.1]]))
    assert kept.omega[-1, 0, 0] < 0 < freed.omega[-1, 0, 0]
    np.testing.assert_allclose(freed.omega[-1, 0, 0], 5**-0.5, rtol=1e-4)


def fig1(make_multi_task):
    return make_multi_task([10] * 3), 0.004 + 0.004 * np.eye(3), np.full((3, 3), 0.3)


def test_the_course_of_figure_1(make_multi_task):
    task, omega, mu = fig1(make_multi_task)
    times = np.array([0, 4, 12, 5000], dtype=float)
    course = softmax.spectral_flow(task, omega, mu, times)
    winner = np.einsum("thh->th", course.omega)
    np.testing.assert_allclose(winner[2] * np.sqrt(10), 0.990, rtol=0, atol=5.1e-4)
    np.testing.assert_allclose(np.einsum("thh->th", course.mu)[2], 2.511, rtol=0, atol=5.1e-4)
    assert course.loss[2].sum() == pytest.approx(6.42, abs=0.0051)
    limit = softmax.flow_limit(task)
    np.testing.assert_allclose(winner[-1], limit.omega, rtol=1e-5)
    # What is left is the tail of the entries off task, of order t^-2.
    assert 0 < course.loss[-1].sum() - softmax.flow_limit_loss(task).sum() < 1e-5


def test_half_the_squared_loss_doubles_times(make_multi_task):
    task, omega, mu = fig1(make_multi_task)
    one = softmax.spectral_flow(task, omega, mu, np.array([3.0, 7.0]))
    other = softmax.spectral_flow(task, omega, mu, np.array([6.0, 14.0]), loss_factor=1.0)
    np.testing.assert_allclose(one.omega, other.omega, rtol=1e-7)
    same = softmax.spectral_flow(task, omega, mu, np.array([3.0, 7.0]), score_scale=30**-0.5, embedding=7)
    np.testing.assert_array_equal(one.mu, same.mu)
    wide = softmax.spectral_flow(task, omega, mu, np.array([3.0, 7.0]), embedding=30)
    np.testing.assert_array_equal(one.mu, wide.mu)


def test_heterogeneous_tasks_and_a_spare_head(make_multi_task):
    task = make_multi_task([6, 10, 14], [2.0, 1.0, 0.5], noise=2)
    omega = np.full((4, 3), 0.004)
    omega[range(3), range(3)] *= 2
    course = softmax.spectral_flow(task, omega, np.full((4, 3), 0.3), np.array([0.0, 2000.0]))
    limit = softmax.flow_limit(task)
    np.testing.assert_allclose(np.diag(course.omega[-1]), limit.omega, rtol=5e-5)
    np.testing.assert_allclose(np.diag(course.mu[-1]), limit.mu, rtol=5e-5)
    assert softmax.flow_limit_loss(task).sum() == pytest.approx(6.6777, abs=5.1e-5)
    assert course.loss[-1].sum() == pytest.approx(6.6777, abs=1e-4)


def test_figure_3(make_multi_task):
    """One head a task: the flow, the reduced equation, and how far apart they are."""
    task = make_multi_task([10] * 3)
    omega = np.linspace(0.001, 0.3, 30_000)
    speed = softmax.reduced_velocity(task, np.stack([omega] * 3, axis=1))[:, 0]
    assert speed.max() == pytest.approx(0.1646, abs=5.1e-5)
    assert omega[np.argmax(speed)] == pytest.approx(0.0939, abs=5.1e-5)
    np.testing.assert_allclose(softmax.mu_lag(task), 1.83, rtol=0, atol=0.0051)
    times = np.linspace(0, 12, 6001)
    course = softmax.single_head_course(task, np.full(3, 0.01), np.ones(3), times)
    reduced = softmax.reduced_course(task, np.full(3, 0.01), times)
    half = 10**-0.5 / 2
    assert np.interp(half, reduced[:, 1], times) == pytest.approx(1.960, abs=5.1e-4)
    assert np.interp(half, course.omega[:, 1], times) == pytest.approx(2.692, abs=5.1e-4)
    assert course.mu.max() == pytest.approx(4.22, abs=0.0051)
    rates = softmax.late_rates(task)
    np.testing.assert_allclose(rates.slow, 0.674, rtol=0, atol=5.1e-4)
    np.testing.assert_allclose(rates.fast, 14.57, rtol=0, atol=5.1e-3)
    np.testing.assert_allclose(rates.slow_if_mu_is_fast, 0.776, rtol=0, atol=5.1e-4)


@given(data=st.data(), part=st.floats(0.05, 0.95))
@settings(max_examples=20)
def test_one_head_each_is_the_flow_of_all(multi_tasks, data, part):
    """The equations of a winning head, written out, and the nullcline where μ stands still."""
    task = data.draw(multi_tasks)
    found = softmax.task_numbers(task)
    omega = part / np.sqrt(found.dims)
    mu = softmax.nullcline(task, omega)
    rates = softmax.spectral_velocity(task, np.diag(omega), np.diag(mu), loss_factor=1.0, score_scale=0.5)
    scale = np.abs(2 * found.signal * mu * omega)
    np.testing.assert_allclose(np.diag(rates.mu) / scale, 0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        np.diag(rates.omega),
        softmax.reduced_velocity(task, omega, loss_factor=1.0, score_scale=0.5),
        rtol=1e-9,
        atol=1e-13 * np.max(found.strengths * omega * mu),
    )
    course = softmax.single_head_course(task, omega, 0.5 * mu, np.array([0.0, 1e-3]))
    r = found.phi * np.exp(found.dims * omega**2) / found.context
    mu = 0.5 * mu
    step = softmax.spectral_velocity(task, np.diag(omega), np.diag(mu))
    expected = 4 * found.signal * mu * (omega - mu * (omega**2 + r))
    np.testing.assert_allclose(np.diag(step.mu), expected, rtol=1e-9, atol=1e-13 * np.abs(found.signal * mu).max())
    assert course.omega.shape == course.mu.shape == course.loss.shape == (2, len(task.dims))


def test_the_reduced_equation_is_the_flow_where_mu_is_fast(make_multi_task):
    task = make_multi_task([100], context=50)
    options = {"embedding": 1e4}
    assert softmax.mu_lag(task, **options)[0] < 0.01
    start = np.array([0.02])
    times = np.linspace(0, 100, 200)
    reduced = softmax.reduced_course(task, start, times, **options)
    course = softmax.single_head_course(task, start, softmax.nullcline(task, start), times, **options)
    # The lag is the relative error of a rate.
    np.testing.assert_allclose(course.omega, reduced, rtol=0.01)
    assert 0.5 < reduced[-1, 0] * 10 < 1


def test_bad_input(make_multi_task):
    task = make_multi_task([3, 4])
    ones = np.full((2, 2), 0.1)
    for times in (np.array([1.0, 0.5]), np.array([-1.0, 0.5])):
        with pytest.raises(InvalidInput, match="increasing"):
            softmax.spectral_flow(task, ones, ones, times)
    with pytest.raises(InvalidInput, match="not finite"):
        softmax.spectral_flow(task, ones * np.nan, ones, np.array([0.0, 1.0]))
    with pytest.raises(InvalidInput, match="loss_factor"):
        softmax.spectral_velocity(task, ones, ones, loss_factor=0.0)
    with pytest.raises(InvalidInput, match="omega"):
        softmax.reduced_course(task, np.zeros(2), np.array([0.0, 1.0]))
    with pytest.raises(TypeError, match="los_factor"):
        softmax.spectral_velocity(task, ones, ones, los_factor=1.0)  # pyright: ignore[reportCallIssue]
    np.testing.assert_allclose(softmax.spectral_flow(task, ones, ones, np.zeros(1)).omega[0], ones, rtol=1e-15)
