"""Maps of weights, what the flow conserves, and aligned weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from stepwell.theory import linear

EPS = np.finfo(float).eps


def velocity(task, v, k, q):
    """τ times the derivatives of rank R, in loops."""
    a = sum(v[h] * np.outer(k[h, r], q[h, r]) for h in range(len(v)) for r in range(k.shape[1]))
    g = (linear.moments(task).cross - linear.moments(task).second @ a) @ task.covariance
    dv = np.array([sum(k[h, r] @ g @ q[h, r] for r in range(k.shape[1])) for h in range(len(v))])
    dk = np.array([[v[h] * g @ q[h, r] for r in range(k.shape[1])] for h in range(len(v))])
    dq = np.array([[v[h] * g.T @ k[h, r] for r in range(k.shape[1])] for h in range(len(v))])
    return dv, dk, dq


def test_maps_are_sums_over_heads():
    rng = np.random.default_rng(0)
    v, k, q, u = rng.normal(size=(5, 2)), *rng.normal(size=(2, 5, 2, 3, 4)), rng.normal(size=(5, 2, 4, 4))
    for t in range(5):
        separate = sum(v[t, h] * np.outer(k[t, h, r], q[t, h, r]) for h in range(2) for r in range(3))
        np.testing.assert_allclose(linear.separate_map(v, k, q)[t], separate, rtol=0, atol=100 * EPS)
        merged = v[t, 0] * u[t, 0] + v[t, 1] * u[t, 1]
        np.testing.assert_allclose(linear.merged_map(v[t], u[t]), merged, rtol=0, atol=100 * EPS)


@pytest.mark.parametrize("rank", [1, 2])
def test_conserved_along_the_flow(make_task, rank):
    task = make_task([1.2, 0.7, 0.3], [0.5, 2.0, 1.0], noise=0.3, rotation=1, task_rotation=2)
    start = 0.5 * np.random.default_rng(1).normal(size=2 + 12 * rank)

    def split(y):
        return y[:2], y[2 : 2 + 6 * rank].reshape(2, rank, 3), y[2 + 6 * rank :].reshape(2, rank, 3)

    def field(_, y):
        return np.concatenate([part.ravel() for part in velocity(task, *split(y))])

    run = solve_ivp(field, (0, 50), start, rtol=1e-10, atol=1e-12)
    path = [np.stack(parts) for parts in zip(*(split(y) for y in run.y.T), strict=True)]
    found = linear.separate_conserved(*path)
    # The solver's 1e-10 a step, times its steps, on weights of order one.
    allowed = 1e-10 * run.t.size * np.abs(run.y).max() ** 2
    np.testing.assert_allclose(found.value_key, np.broadcast_to(found.value_key[0], (run.t.size, 2)), atol=allowed)
    drift = found.key_query - found.key_query[0]
    assert found.key_query.shape == (run.t.size, 2, rank, rank) and np.abs(drift).max() < allowed
    assert np.abs(run.y[:, -1] - run.y[:, 0]).max() > 0.1
    by_hand = path[0][3, 1] ** 2 - np.sum(path[1][3, 1] ** 2)
    assert found.value_key[3, 1] == pytest.approx(by_hand, abs=100 * EPS)


def test_merged_conserved(make_task):
    task = make_task([1.2, 0.7, 0.3], [0.5, 2.0, 1.0], noise=0.3, rotation=1, task_rotation=2)
    rng = np.random.default_rng(0)
    v, u = rng.normal(size=4), rng.normal(size=(4, 3, 3))
    g = (linear.moments(task).cross - linear.moments(task).second @ linear.merged_map(v, u)) @ task.covariance
    dv, du = np.array([np.sum(matrix * g) for matrix in u]), v[:, None, None] * g
    # An Euler step changes it at second order only, and by exactly the squares.
    h = 1e-3
    change = linear.merged_conserved(v + h * dv, u + h * du) - linear.merged_conserved(v, u)
    np.testing.assert_allclose(change, h**2 * linear.merged_conserved(dv, du), rtol=0, atol=1e3 * EPS)


@given(
    variances=st.lists(st.floats(0.1, 2.0), min_size=4, max_size=4),
    task_variances=st.lists(st.floats(0.1, 2.0), min_size=4, max_size=4),
    noise=st.floats(0.0, 2.0),
    learned=st.sets(st.integers(0, 3)),
    rank=st.integers(1, 3),
)
def test_aligned_weights_are_balanced_and_at_rest(make_task, variances, task_variances, noise, learned, rank):
    task = make_task(variances, task_variances, noise=noise, rotation=1, task_rotation=2)
    weights = linear.aligned_weights(task, learned, heads=4, rank=rank)
    wanted = linear.fixed_point(task, learned).effective_map
    scale = 1e3 * EPS * (1 + np.abs(wanted).max()) * np.linalg.cond(linear.moments(task).second)
    np.testing.assert_allclose(linear.separate_map(*weights), wanted, rtol=0, atol=scale)
    balance = linear.separate_conserved(*weights)
    assert np.abs(balance.value_key).max() < scale and np.abs(balance.key_query).max() < scale
    assert all(
        np.abs(part).max() < 10 * scale * linear.moments(task).label_power ** 2 for part in velocity(task, *weights)
    )


def test_aligned_weights_of_the_paper(make_task):
    task = make_task([0.4, 0.3, 0.2, 0.1])
    values, keys, queries = linear.aligned_weights(task, [1], heads=2)
    end = linear.aligned_end(task, 1)
    np.testing.assert_allclose(values, [end, 0.0], rtol=1e-14)
    np.testing.assert_allclose(keys[0, 0] * queries[0, 0], [0, end**2, 0, 0], rtol=0, atol=1e-14)
