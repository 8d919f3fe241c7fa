"""Limits and bounds of the spectral loss: recorded values, SciPy's optimizer, and inequalities for any weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from stepwell._util.errors import InvalidInput
from stepwell.theory import softmax


@given(data=st.data())
@settings(max_examples=30)
def test_the_limit_is_a_fixed_point_with_its_loss(multi_tasks, data):
    task = data.draw(multi_tasks)
    heads = [np.diag(weights) for weights in softmax.flow_limit(task)]
    np.testing.assert_allclose(softmax.spectral_loss(task, *heads), softmax.flow_limit_loss(task), rtol=1e-12)
    velocity = softmax.spectral_velocity(task, *heads)
    found = softmax.task_numbers(task)
    scale = found.signal.max() * (1 + np.abs(heads[1]).max() ** 2)
    assert np.abs(velocity.omega).max() < 1e-12 * scale and np.abs(velocity.mu).max() < 1e-12 * scale
    # For each task it is the best of a head with nothing else, whatever ω.
    part = np.array([0.1, 0.5, 0.97, 1.0, 1.03, 1.5])[:, None]
    omega = part * found.dims**-0.5
    r = found.phi / found.context * np.exp(found.dims * omega**2)
    alone = found.signal * r / (omega**2 + r)
    np.testing.assert_array_equal(np.argmin(alone, axis=0), 3)
    np.testing.assert_allclose(alone[3], softmax.flow_limit_loss(task), rtol=1e-12)


def test_recorded_losses(make_multi_task):
    """Dimension 8, L = 60, unit strength, no noise: bounds and the limit for several heads and tasks."""
    recorded = {(1, 2): 6.72397, (2, 2): 3.36842, (3, 2): 1.88235, (2, 3): 6.85714, (3, 3): 4.0, (4, 3): 2.82353}
    for (heads, tasks), loss in recorded.items():
        bound = softmax.lower_bound(make_multi_task([8] * tasks, context=60), heads)
        assert bound.sum() == pytest.approx(loss, abs=5.1e-6)
    for tasks, loss in ((2, 4.25634), (3, 6.38451)):
        task = make_multi_task([8] * tasks, context=60)
        assert softmax.flow_limit_loss(task).sum() == pytest.approx(loss, abs=5.1e-6)
        assert softmax.best_partition(task, tasks).loss.sum() == pytest.approx(loss, abs=5.1e-6)
    pair = softmax.best_partition(make_multi_task([8] * 3, context=60), 2)
    assert sorted(map(len, pair.groups)) == [1, 2]
    assert pair.loss.sum() == pytest.approx(8.85214, abs=5.1e-6)


def test_the_single_head_of_the_example(make_multi_task):
    task = make_multi_task([4, 10, 7], [2.0, 0.6, 0.05], context=50, noise=0.8)
    found = softmax.single_head_optimum(task)
    assert found.loss.sum() == pytest.approx(6.2411437847, abs=5.1e-11)
    assert found.omega[2] == found.mu[2] == 0 and found.loss[2] == pytest.approx(0.35, rel=1e-14)


def searched_loss(found, start):
    """The least spectral loss that an optimizer finds over scores ω, with μ from a linear solve; ω√d is searched."""

    def loss(flat):
        omega = flat.reshape(start.shape) / np.sqrt(found.dims)
        # The ridge keeps heads that are alike from dividing zero by zero.
        kernel = np.exp((omega * found.dims) @ omega.T) + 1e-10 * np.eye(len(omega))
        s = np.sum(omega * np.linalg.solve(kernel, omega), axis=0)
        return np.sum(found.signal / (1 + found.context * s / found.phi)) / found.signal.sum()

    return minimize(loss, start.ravel(), method="BFGS", options={"gtol": 1e-9}).fun * found.signal.sum()


@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_single_head_against_an_optimizer(multi_tasks, data, seed):
    task = data.draw(multi_tasks)
    best = softmax.single_head_optimum(task)
    found = softmax.task_numbers(task)
    assert np.sum(found.dims * best.omega**2) == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(softmax.spectral_loss(task, best.omega[None], best.mu[None]), best.loss, rtol=1e-11)

    starts = np.random.default_rng(seed).uniform(0.1, 1.0, size=(3, 1, len(task.dims)))
    searched = min(searched_loss(found, start) for start in starts) / found.signal.sum()
    total = best.loss.sum() / found.signal.sum()
    assert total <= searched + 1e-12
    # An optimizer stops where the loss is flat to rounding: gradients of 1e-8 in its differences.
    assert searched == pytest.approx(total, abs=1e-7)


@given(data=st.data(), heads=st.integers(1, 5), part=st.floats(0.01, 1.2))
@settings(max_examples=30)
def test_water_filling_against_an_optimizer(multi_tasks, data, heads, part):
    task = data.draw(multi_tasks)
    found, tasks = softmax.task_numbers(task), len(task.dims)
    budget = min(part * tasks, tasks)
    shares = softmax.filled_shares(task, part * tasks)
    assert np.all(shares >= 0) and np.all(shares <= 1)
    assert shares.sum() == pytest.approx(budget, rel=1e-10)
    searched = minimize(
        lambda x: softmax.loss_of_shares(task, x).sum() / found.signal.sum(),
        np.full(tasks, budget / tasks),
        method="SLSQP",
        bounds=[(0, 1)] * tasks,
        constraints={"type": "eq", "fun": lambda x: x.sum() - budget},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    total = softmax.loss_of_shares(task, shares).sum() / found.signal.sum()
    assert total <= searched.fun + 1e-9
    # Equal marginal gains where a task is neither empty nor full, which is what makes it the least.
    slope = found.signal / found.dims * found.context / found.phi
    slope /= (1 + found.context * shares / (found.dims * found.phi)) ** 2
    inner = (shares > 1e-9) & (shares < 1 - 1e-9)
    if inner.any():
        level = slope[inner].mean()
        np.testing.assert_allclose(slope[inner], level, rtol=1e-6)
        assert np.all(slope[shares <= 1e-9] <= level * (1 + 1e-6))
        assert np.all(slope[shares >= 1 - 1e-9] >= level * (1 - 1e-6))


@given(data=st.data(), heads=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), size=st.floats(0.02, 1.5))
@settings(max_examples=60)
def test_no_weights_go_below_the_bounds(multi_tasks, data, heads, seed, size):
    task = data.draw(multi_tasks)
    rng = np.random.default_rng(seed)
    omega = size * rng.normal(size=(heads, len(task.dims))) / np.sqrt(np.array(task.dims))
    if seed % 2:
        omega -= omega.mean(axis=0)  # zero-sum contrasts come near
    profile = softmax.profile_loss(task, omega)
    np.testing.assert_allclose(softmax.spectral_loss(task, omega, profile.mu), profile.loss, rtol=1e-6)
    assert np.all(profile.shares <= 1 + 1e-9)
    for provable in (True, False):
        budget = softmax.attention_budget(heads, len(task.dims), provable=provable)
        assert profile.shares.sum() <= budget * (1 + 1e-9)
        bound = softmax.lower_bound(task, heads, provable=provable)
        assert profile.loss.sum() >= bound.sum() * (1 - 1e-9)
    # No other μ is better.
    other = profile.mu * (1 + 0.1 * rng.normal(size=profile.mu.shape))
    assert np.all(softmax.spectral_loss(task, omega, other) >= profile.loss * (1 - 1e-9))


@pytest.mark.parametrize(("heads", "tasks"), [(1, 2), (2, 2), (3, 2), (2, 3), (3, 3), (4, 3)])
def test_the_bound_is_approached(make_multi_task, heads, tasks):
    """By an optimizer over signed weights: homogeneous and not."""
    for strengths in (1.0, np.linspace(0.5, 2.0, tasks)):
        task = make_multi_task([8] * tasks, strengths, context=60)
        bound = softmax.lower_bound(task, heads).sum()
        starts = np.random.default_rng(heads).normal(scale=0.3, size=(6, heads, tasks))
        found = min(searched_loss(softmax.task_numbers(task), start) for start in starts)
        # The least is at infinity for several heads, so an optimizer stops a little above.
        assert bound * (1 - 1e-9) <= found <= bound * 1.0005


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_equiangular_heads(make_multi_task, heads):
    """Against the trace, and its supremum against the budget."""
    sizes = np.append(np.geomspace(1e-5, 3, 20), 1.0)
    best = 0.0
    for a in sizes:
        for part in np.linspace(-1, 1, 9):
            b = a * part if part > 0 else a * part / max(heads - 1, 1)
            overlaps = np.full((heads, heads), b) + (a - b) * np.eye(heads)
            kernel = np.exp(overlaps)
            found = softmax.equiangular_budget(heads, a, b)
            if np.linalg.cond(kernel) < 1e6:
                assert found == pytest.approx(np.trace(np.linalg.solve(kernel, overlaps)), rel=1e-8)
            best = max(best, found)
    budget = softmax.attention_budget(heads, heads)
    # Approached as the heads become flat: within their size, 1e-5.
    assert budget * (1 - 1e-4) < best <= budget * (1 + 1e-12)


def test_budgets():
    assert [softmax.attention_budget(heads, 3) for heads in (1, 2, 3, 4, 5)] == [1 / np.e, 1, 2, 3, 3]
    assert [softmax.attention_budget(heads, 3, provable=True) for heads in (1, 2, 3, 4)] == [1, 2, 3, 3]


def test_sign_pairs(make_multi_task):
    task = make_multi_task([10], noise=1)
    sizes = np.array([0.0, 0.02, 0.5, 1.0, 400.0])
    losses = softmax.sign_pair_loss(task, sizes)[:, 0] / 10
    assert losses[0] == pytest.approx(0.0991, abs=5.1e-5)
    assert losses[-1] == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(softmax.sign_pair_loss(task, np.zeros(1))[0], softmax.lower_bound(task, 2), rtol=1e-14)
    for a, loss in zip(sizes[1:4], losses[1:4], strict=True):
        omega = np.array([[1.0], [-1.0]]) * np.sqrt(a / 10)
        assert softmax.profile_loss(task, omega).loss[0] / 10 == pytest.approx(loss, rel=1e-9)
    assert softmax.linear_attention_loss(task)[0] / 10 == pytest.approx(0.1071, abs=5.1e-5)


@given(data=st.data())
@settings(max_examples=30)
def test_the_limit_is_within_a_factor_e(multi_tasks, data):
    task = data.draw(multi_tasks)
    tasks = len(task.dims)
    limit, bound = softmax.flow_limit_loss(task), softmax.lower_bound(task, tasks + 1)
    assert np.all(limit > bound) and np.all(limit < np.e * bound)
    totals = [softmax.lower_bound(task, heads).sum() for heads in range(1, tasks + 3)]
    assert np.all(np.diff(totals) <= 1e-12 * totals[0]) and totals[-1] == totals[-2]
    np.testing.assert_allclose(softmax.lower_bound(task, 1), softmax.single_head_optimum(task).loss, rtol=1e-12)
    # Homogeneous tasks in one head cost up to as many times as there are.
    assert softmax.single_head_optimum(task).loss.sum() >= limit.sum() * (1 - 1e-12)


def test_many_small_tasks_in_one_head(make_multi_task):
    task = make_multi_task([1] * 10, context=1000)
    ratio = softmax.single_head_optimum(task).loss.sum() / softmax.flow_limit_loss(task).sum()
    # φ = 1 here: 10 (1 + ρ)/(1 + 10 ρ), ρ = e/1000.
    assert ratio == pytest.approx(10 * (1 + np.e / 1000) / (1 + np.e / 100), rel=1e-12)
    noisy = make_multi_task([1] * 10, context=1000, noise=1)
    ratio = softmax.single_head_optimum(noisy).loss.sum() / softmax.flow_limit_loss(noisy).sum()
    assert ratio == pytest.approx(9.54, abs=0.0051)


def test_partitions_against_all(make_multi_task):
    task = make_multi_task([3, 10, 6, 4], [2.0, 0.3, 1.0, 0.6], context=40, noise=0.5)

    def partitions(rest):
        if not rest:
            yield []
            return
        for smaller in partitions(rest[1:]):
            yield [[rest[0]], *smaller]
            for place in range(len(smaller)):
                yield [*smaller[:place], [rest[0], *smaller[place]], *smaller[place + 1 :]]

    everything = list(partitions([0, 1, 2, 3]))
    assert len(everything) == 15
    for heads in (1, 2, 3, 4):
        least = min(softmax.shared_loss(task, groups).sum() for groups in everything if len(groups) <= heads)
        best = softmax.best_partition(task, heads)
        assert best.loss.sum() == pytest.approx(least, rel=1e-12) and len(best.groups) <= heads
        assert sorted(i for group in best.groups for i in group) == [0, 1, 2, 3]


def test_water_filling_at_corners(make_multi_task):
    """One task full before the other starts; noise beyond the digits of the shares; equal tasks."""
    apart = make_multi_task([2, 2], [5.0, 0.001], context=3)
    np.testing.assert_allclose(softmax.filled_shares(apart, 1.0), [1, 0], rtol=0, atol=1e-12)
    drowned = make_multi_task([1, 2], [1.0, 3.0], context=2, noise=1e40)
    for budget in (0.3, 1.0, 1.7, 2.0):
        shares = softmax.filled_shares(drowned, budget)
        assert shares.sum() == pytest.approx(budget, rel=1e-12) and np.all((shares >= 0) & (shares <= 1))
    assert softmax.filled_shares(drowned, 1.0)[1] == 1  # the stronger signal first
    equal = make_multi_task([4] * 3)
    np.testing.assert_allclose(softmax.filled_shares(equal, 1.5), 0.5, rtol=1e-12)
    with pytest.raises(InvalidInput, match="budget"):
        softmax.filled_shares(equal, 0.0)


def test_bad_input(make_multi_task):
    task = make_multi_task([3, 4])
    with pytest.raises(InvalidInput, match="heads is 0"):
        softmax.lower_bound(task, 0)
    with pytest.raises(InvalidInput, match="overlap"):
        softmax.equiangular_budget(3, 1.0, -0.6)
    with pytest.raises(InvalidInput, match="each of 0 to 1 once"):
        softmax.shared_loss(task, [[0], [0]])
    with pytest.raises(InvalidInput, match="at most 12"):
        softmax.best_partition(make_multi_task([2] * 13), 3)
    with pytest.raises(InvalidInput, match="sharpness"):
        softmax.sign_pair_loss(task, np.array([-1.0]))
