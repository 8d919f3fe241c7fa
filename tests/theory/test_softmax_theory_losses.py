"""Losses of softmax heads: the three theories against samples, each other and recorded values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from stepwell._util.errors import InvalidInput
from stepwell.theory import MultiTask, softmax
from stepwell.theory.softmax._losses import gram, loss_with_overlaps

# d, L, noise variance; loss/(λd) spectral, to first order, exact; errors in per cent; best ω√d and μ/μ_limit.
RECORDED = [
    (5, 50, 0, 0.2137, 0.3815, 0.2486, -14, 53, 1.094, 0.950),
    (10, 100, 0, 0.2137, 0.2708, 0.2355, -9.2, 15, 1.007, 0.998),
    (10, 100, 1, 0.2302, 0.2880, 0.2518, -8.6, 14, 1.009, 0.995),
    (10, 1000, 0, 0.0265, 0.0334, 0.0322, -18, 3.8, 0.894, 1.116),
    (30, 100, 0, 0.4492, 0.4820, 0.4582, -2.0, 5.2, 1.048, 0.969),
    (30, 300, 1, 0.2193, 0.2349, 0.2282, -3.9, 2.9, 0.989, 1.010),
    (50, 50, 0, 0.7311, 0.7621, 0.7341, -0.4, 3.8, 1.136, 0.942),
    (100, 100, 0, 0.7311, 0.7461, 0.7319, -0.1, 1.9, 1.065, 0.968),
    (100, 1000, 1, 0.2154, 0.2198, 0.2183, -1.3, 0.7, 0.994, 1.005),
    (200, 200, 0, 0.7311, 0.7385, 0.7312, -0.0, 1.0, 1.032, 0.983),
]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"d={row[0]}, L={row[1]}, noise={row[2]}")
def test_errors_where_the_flow_ends(make_multi_task, row):
    d, context, noise, spectral, first_order, exact, low, high, omega, mu = row
    found = softmax.approximation_errors(make_multi_task([d], context=context, noise=noise))
    # Half of the last digit given, and of the two digits of large percentages.
    np.testing.assert_allclose(found.spectral, spectral, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(found.first_order, first_order, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(found.exact, exact, rtol=0, atol=5.1e-5)
    np.testing.assert_allclose(100 * found.spectral_error, low, rtol=0, atol=0.051 if abs(low) < 10 else 0.51)
    np.testing.assert_allclose(100 * found.first_order_error, high, rtol=0, atol=0.051 if abs(high) < 10 else 0.51)
    np.testing.assert_allclose(found.best_omega, omega, rtol=0, atol=7e-4)
    np.testing.assert_allclose(found.best_mu, mu, rtol=0, atol=7e-4)


def brute_force(task: MultiTask, omega, mu, samples, seed):
    """The loss of each task with its standard error: g and ε integrated, contexts and queries drawn."""
    rng = np.random.default_rng(seed)
    (context,), dims = task.context.counts, np.array(task.dims)
    block = np.repeat(np.arange(dims.size), dims)
    draws = np.empty((samples, dims.size))
    for sample in draws:
        x, q = rng.normal(size=(context, dims.sum())), rng.normal(size=dims.sum())
        scores = x @ (omega[:, block] * q).T
        p = np.exp(scores - scores.max(axis=0))
        weights = (p / p.sum(axis=0)) @ mu
        for i in range(dims.size):
            miss = q[block == i] - x[:, block == i].T @ weights[:, i]
            sample[i] = task.strengths[i] * miss @ miss + task.noise_variance * weights[:, i] @ weights[:, i]
    return draws.mean(axis=0), draws.std(axis=0, ddof=1) / samples**0.5


@pytest.mark.parametrize(
    ("dims", "context", "omega", "mu"),
    [
        # One head for both tasks; a head with scores on a task it does not serve; scores of either sign.
        ([3, 6], 20, [[0.4, 0.2]], [[1.5, 2.0]]),
        ([3, 6, 1], 12, [[0.5, -0.3, 0.2], [0.1, 0.0, 0.9]], [[1.2, -1.5, 0.0], [0.0, 0.0, 0.7]]),
        # A head without scores averages; a task without a head has its signal as loss.
        ([2, 4], 8, [[0.0, 0.0], [0.5, 0.5]], [[0.6, 0.0], [0.0, 0.0]]),
    ],
)
def test_exact_loss_against_samples(make_multi_task, dims, context, omega, mu):
    task = make_multi_task(dims, np.linspace(0.5, 1.5, len(dims)), context=context, noise=0.7)
    omega, mu = np.array(omega), np.array(mu)
    mean, error = brute_force(task, omega, mu, 8000, seed=1)
    # Seven numbers: five standard errors by chance have probability 4e-6.
    assert np.all(np.abs(softmax.exact_loss(task, omega, mu) - mean) < 5 * error)


def test_exact_loss_of_several_blocks_is_that_of_one(make_multi_task):
    """Blocks with equal scores are one block: the folded table against the plain rule."""
    whole = make_multi_task([13], 0.8, context=60, noise=0.3)
    parts = make_multi_task([2, 4, 7], 0.8, context=60, noise=0.3)
    one = softmax.exact_loss(whole, np.array([[0.35]]), np.array([[2.0]]))[0]
    # Noise and the variance of the other blocks' coordinates are per output: three outputs have the noise thrice.
    several = softmax.exact_loss(parts, np.full((1, 3), 0.35), np.full((1, 3), 2.0)).sum()
    silent = make_multi_task([13], 0.8, context=60)
    noise = one - softmax.exact_loss(silent, np.array([[0.35]]), np.array([[2.0]]))[0]
    assert several == pytest.approx(one + 2 * noise, rel=1e-8)


@given(data=st.data())
@settings(max_examples=15)
def test_theories_agree_for_long_contexts_and_flat_heads(make_multi_task, multi_tasks, data):
    drawn = data.draw(multi_tasks)
    task = make_multi_task(drawn.dims, drawn.strengths, context=10**6, noise=drawn.noise_variance)
    size = 0.3 / np.sqrt(np.array(task.dims))
    heads = np.diag(size), np.diag(0.8 / size)
    exact = softmax.exact_loss(task, *heads)
    # At |w|² of .09 and L of 1e6 second orders are of 1e-6; the spectral theory also takes |q|² as d.
    np.testing.assert_allclose(softmax.first_order_loss(task, *heads), exact, rtol=1e-5)
    variance = np.array(task.dims) / 0.09 * 0.64 * softmax.task_numbers(task).phi / 1e6
    slack = variance * (np.exp(0.09) * 0.3) * softmax.task_numbers(task).signal
    assert np.all(np.abs(softmax.spectral_loss(task, *heads) - exact) < slack + 1e-5 * exact)


def test_overlapping_heads_against_samples(make_multi_task):
    """Cross terms between heads, of the spectral theory and of the first order, where both are good."""
    task = make_multi_task([40, 60], [1.0, 0.5], context=400, noise=2.0)
    omega = np.array([[0.08, 0.03], [0.02, 0.07]])
    mu = np.array([[5.0, 2.0], [3.0, 6.0]])
    mean, error = brute_force(task, omega, mu, 2500, seed=2)
    assert np.all(np.abs(softmax.first_order_loss(task, omega, mu) - mean) < 5 * error + 0.01 * mean)
    np.testing.assert_allclose(softmax.spectral_loss(task, omega, mu), mean, rtol=0.05)


def test_sharpness_at_fixed_dimension(make_multi_task):
    """Errors at d = 30, L = 100 with the μ that is best for the spectral theory."""
    task = make_multi_task([30], context=100)
    squares = np.array([0.1, 0.5, 1, 1.5, 2, 2.5, 3, 4])
    spectral, first_order = [], []
    for square in squares:
        omega = np.array([[np.sqrt(square / 30)]])
        mu = softmax.profile_loss(task, omega).mu
        exact = softmax.exact_loss(task, omega, mu)[0]
        spectral.append(100 * (softmax.spectral_loss(task, omega, mu)[0] / exact - 1))
        first_order.append(100 * (softmax.first_order_loss(task, omega, mu)[0] / exact - 1))
    # Half of the last digit given.
    assert np.all(np.abs(np.array(spectral) - [-0.6, -2.1, -2.0, 1.2, 6, 11, 13, 11]) < [0.051] * 4 + [0.51] * 4)
    recorded = [0, 0.9, 5, 15, 29, 45, 62, 100]
    assert np.all(np.abs(np.array(first_order) - recorded) < [0.51, 0.051, *[0.51] * 6])


@given(data=st.data(), heads=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_linear_heads(multi_tasks, data, heads, seed):
    task = data.draw(multi_tasks)
    rng = np.random.default_rng(seed)
    omega, mu = rng.normal(size=(2, heads, len(task.dims)))
    found = softmax.task_numbers(task)
    exact = softmax.linear_heads_loss(task, omega, mu)
    c = np.sum(mu * omega, axis=0)
    # The exponential made linear, and the term that is exact for d φ + 1 in place of d φ.
    linearized = loss_with_overlaps(task, omega, mu, gram(task, omega))
    np.testing.assert_allclose(exact, linearized + found.signal * c**2 / found.context, rtol=1e-12)
    alone = softmax.linear_heads_loss(task, np.diag(omega[0]), np.diag(mu[0]))
    c = omega[0] * mu[0]
    nu = (found.dims * found.phi + 1) / found.context
    np.testing.assert_allclose(alone, found.signal * ((1 - c) ** 2 + c**2 * nu), rtol=1e-10)
    best = np.diag(1 / (1 + nu) / omega[0])
    np.testing.assert_allclose(
        softmax.linear_heads_loss(task, np.diag(omega[0]), best),
        softmax.linear_attention_loss(task),
        rtol=1e-10,
    )


def test_linear_heads_against_samples(make_multi_task):
    task = make_multi_task([2, 3], [1.0, 0.4], context=6, noise=0.5)
    omega, mu = np.array([[0.6, 0.2], [0.3, -0.5]]), np.array([[0.9, 0.5], [-0.4, 1.1]])
    rng = np.random.default_rng(3)
    x, q = rng.normal(size=(100_000, 6, 5)), rng.normal(size=(100_000, 5))
    block = np.repeat([0, 1], [2, 3])
    scores = np.einsum("slj,hj,sj->slh", x, omega[:, block], q) / 6
    weights = scores @ mu
    for i in range(2):
        miss = q[:, block == i] - np.einsum("slj,sl->sj", x[:, :, block == i], weights[:, :, i])
        draws = task.strengths[i] * np.sum(miss**2, axis=1) + 0.5 * np.sum(weights[:, :, i] ** 2, axis=1)
        error = draws.std() / len(draws) ** 0.5
        assert abs(draws.mean() - softmax.linear_heads_loss(task, omega, mu)[i]) < 5 * error


def test_leading_axes_are_allowed(make_multi_task):
    task = make_multi_task([4, 9], [1.0, 2.0], noise=0.3)
    omega, mu = np.random.default_rng(0).uniform(0, 0.3, size=(2, 5, 7, 3, 2))
    for loss in (softmax.spectral_loss, softmax.first_order_loss, softmax.linear_heads_loss):
        whole = loss(task, omega, mu)
        assert whole.shape == (5, 7, 2)
        np.testing.assert_allclose(whole[2, 3], loss(task, omega[2, 3], mu[2, 3]), rtol=1e-13)


def test_the_real_task_serves():
    from stepwell.tasks import MultiTaskRegression

    real = MultiTaskRegression((4, 10, 7), (8.0, 6.0, 0.35), 50, noise_variance=0.8, convention="total")
    assert isinstance(real, MultiTask)
    assert softmax.single_head_optimum(real).loss.sum() == pytest.approx(6.2411437847, abs=5e-11)


def least_of_two(dim, noise):
    """The least loss of two pairs, whose softmax weights are (1 ± tanh(au/√2))/2, u normal; by SciPy, with no moments
    of the library: ω√d, μ, loss."""
    (x, wx), (y, wy) = (np.polynomial.legendre.leggauss(count) for count in (400, 100))
    u, q = 4.5 * (x + 1), (np.sqrt(dim) + 8) * (y + 1) / 2  # |u| and the norm of the query
    weight, density = wx * np.exp(-(u**2) / 2), wy * np.exp((dim - 1) * np.log(q) - q**2 / 2)
    weight, density = weight / weight.sum(), density / density.sum()

    def loss(log_size):
        turned = np.tanh(np.exp(log_size) * dim**-0.5 * q[:, None] * u / 2**0.5)
        overlap = (1 + turned**2 @ weight) / 2
        along = turned @ (weight * u) / 2**0.5  # E Σ p z
        second = (1 + turned**2 @ (weight * u**2)) / 2
        signal = density @ (q * along)
        cost = density @ (second + (dim - 1 + noise) * overlap)
        return dim - signal**2 / cost, signal / cost

    best: Any = minimize_scalar(lambda x: loss(x)[0], bounds=(0.0, 4.0), method="bounded", options={"xatol": 1e-5})
    return np.exp(best.x), loss(best.x)[1], best.fun


@pytest.mark.parametrize("dim, noise", [(2, 10.0), (3, 0.0), (30, 0.0)])
def test_the_best_weights_for_two_pairs_against_another_minimization(make_multi_task, dim, noise):
    best = softmax.exact_optimum(make_multi_task([dim], context=2, noise=noise))
    size, mu, loss = least_of_two(dim, noise)
    assert size > 5.2
    np.testing.assert_allclose(best.loss, loss, rtol=1e-6)
    np.testing.assert_allclose(best.omega * dim**0.5, size, rtol=1e-2)  # the minimum is flat
    np.testing.assert_allclose(best.mu, mu, rtol=1e-3)


def test_one_pair_leaves_omega_undetermined(make_multi_task):
    task = make_multi_task([3, 4], [1.0, 2.0], context=1, noise=0.5)
    best = softmax.exact_optimum(task)
    assert np.isnan(best.omega).all() and not best.mu.any()
    np.testing.assert_allclose(best.loss, [3.0, 8.0])
    for size in (0.1, 3.0):  # whatever the scores, any readout costs
        used = softmax.exact_loss(task, size * np.eye(2), 0.1 * np.eye(2))
        np.testing.assert_allclose(used, [3.0 + 0.01 * 3.5, 8.0 + 0.01 * 8.5], rtol=1e-7)


def test_bad_input(make_multi_task):
    task = make_multi_task([3, 4])
    with pytest.raises(InvalidInput, match="task is 2 in task"):
        softmax.spectral_loss(task, np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(InvalidInput, match="several heads"):
        softmax.exact_loss(task, np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(InvalidInput, match="exact_loss"):
        softmax.first_order_loss(task, np.full((1, 2), 0.8), np.ones((1, 2)))
    with pytest.raises(InvalidInput, match="strength"):
        softmax.flow_limit(make_multi_task([3, 4], [1.0, 0.0]))
    from dataclasses import replace

    varied = replace(task, context=type(task.context)((5, 9), (0.5, 0.5)))
    with pytest.raises(InvalidInput, match=r"\(5, 9\).*for instance 9"):
        softmax.flow_limit(varied)
