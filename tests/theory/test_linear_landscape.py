"""Hessians against the polynomial that the loss is along a line, and the kinds of saddles."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.theory import linear

EPS = np.finfo(float).eps

CORRELATED = {
    "variances": [1.2, 0.7, 0.3],
    "task_variances": [0.5, 2.0, 1.0],
    "lengths": (8,),
    "noise": 0.3,
    "rotation": 1,
    "task_rotation": 2,
}


def curvature(loss, weights, direction, degree):
    """The second derivative of a polynomial loss along a line, exact but for rounding: an interpolation."""
    points = np.linspace(-1, 1, degree + 1)
    values = [loss(weights + t * direction) for t in points]
    return 2 * np.polynomial.polynomial.Polynomial.fit(points, values, degree, domain=[-1, 1]).coef[2]


def plain_loss(task, a):
    """tr(ΩΛ) - 2 tr(Aᵀ M Λ) + tr(Aᵀ C A Λ), written out for one length."""
    lam, omega, n = task.covariance, task.task_covariance, task.context.counts[0]
    c = (1 + 1 / n) * lam @ omega @ lam + (np.trace(omega @ lam) + task.noise_variance) / n * lam
    return np.trace(omega @ lam) - 2 * np.trace(a.T @ lam @ omega @ lam) + np.trace(a.T @ c @ a @ lam)


@pytest.mark.parametrize("heads, rank", [(1, 1), (3, 1), (2, 2)])
def test_separate_hessian(make_task, heads, rank):
    task = make_task(**CORRELATED)
    rng = np.random.default_rng(0)
    ends = np.cumsum([heads, heads * rank * 3])

    def split(flat):
        v, k, q = np.split(flat, ends)
        return v, k.reshape(heads, rank, 3), q.reshape(heads, rank, 3)

    def loss(flat):
        v, k, q = split(flat)
        return plain_loss(task, sum(v[h] * np.outer(k[h, r], q[h, r]) for h in range(heads) for r in range(rank)))

    weights = rng.normal(size=heads * (1 + 6 * rank))
    hessian = linear.separate_hessian(task, *split(weights))
    np.testing.assert_array_equal(hessian, hessian.T)
    for direction in rng.normal(size=(20, weights.size)):
        expected = curvature(loss, weights, direction, 6)
        # Interpolation at seven points amplifies the rounding of the values, of which the largest is at an end.
        allowed = 1e3 * EPS * max(abs(loss(weights + direction)), abs(loss(weights - direction)), 1.0)
        assert direction @ hessian @ direction == pytest.approx(expected, abs=allowed)


def test_merged_hessian(make_task):
    task = make_task(**CORRELATED)
    rng = np.random.default_rng(0)

    def split(flat):
        return flat[:2], flat[2:].reshape(2, 3, 3)

    def loss(flat):
        v, u = split(flat)
        return plain_loss(task, v[0] * u[0] + v[1] * u[1])

    weights = rng.normal(size=20)
    hessian = linear.merged_hessian(task, *split(weights))
    for direction in rng.normal(size=(20, weights.size)):
        allowed = 1e3 * EPS * max(loss(weights + direction), loss(weights - direction), 1.0)
        assert direction @ hessian @ direction == pytest.approx(curvature(loss, weights, direction, 4), abs=allowed)


def test_reference_values(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=3)
    expected = {
        (): (0, "higher-order saddle", 0.0),
        (0,): (0, "higher-order saddle", 0.0),
        (1,): (1, "strict saddle", -0.169),
        (2,): (2, "strict saddle", -0.303),
        (0, 1): (0, "higher-order saddle", 0.0),
        (0, 2): (1, "strict saddle", -0.0586),
        (1, 2): (2, "strict saddle", -0.303),
        (0, 1, 2): (0, "minimum", 0.0),
    }
    for learned, (negative, kind, lowest) in expected.items():
        found = linear.fixed_point_landscape(task, learned, heads=3)
        assert (found.negative, found.kind) == (negative, kind), learned
        assert found.negative + found.zero + found.positive == found.eigenvalues.size == 21
        # Three digits are given.
        assert found.eigenvalues[0] == pytest.approx(lowest, abs=5.01e-4 if lowest < -0.1 else 5.01e-5)


@given(
    steps=st.lists(st.floats(0.1, 0.5), min_size=4, max_size=4), length=st.integers(1, 100), noise=st.floats(0.0, 2.0)
)
@settings(max_examples=20)
def test_only_the_path_is_not_strict(make_task, steps, length, noise):
    task = make_task(np.cumsum(steps), lengths=(length,), noise=noise, rotation=4)
    for size in range(5):
        for learned in itertools.combinations(range(4), size):
            found = linear.fixed_point_landscape(task, learned, heads=5)
            # Each pair of a component in use and a better one unused is a way down.
            better = sum(d not in learned and d < used for used in learned for d in range(4))
            assert found.negative == better
            assert (found.kind == "strict saddle") == (better > 0)
            assert (found.kind == "minimum") == (size == 4)


def test_correlated_tasks_have_the_same_kinds(make_task):
    task = make_task(**CORRELATED)
    for size in range(4):
        for learned in itertools.combinations(range(3), size):
            found = linear.fixed_point_landscape(task, learned, heads=4)
            on_the_path = learned == tuple(range(size))
            kind = "strict saddle" if not on_the_path else "minimum" if size == 3 else "higher-order saddle"
            assert found.kind == kind


def test_a_higher_order_saddle_is_left_at_third_order(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=3)
    values, keys, queries = linear.aligned_weights(task, [0], heads=2)
    e = linear.modes(task).directions[:, 1]
    falls = []
    for size in (1e-2, 2e-2):
        spare = np.array([0.0, size]), np.stack([0 * e, size * e])[:, None], np.stack([0 * e, size * e])[:, None]
        a = linear.separate_map(values + spare[0], keys + spare[1], queries + spare[2])
        falls.append(linear.levels(task)[1] - plain_loss(task, a))
    # 2 λ² size³, and the next order is size³ smaller again.
    assert falls[0] == pytest.approx(2 * 0.09 * 1e-6, rel=1e-4)
    assert falls[1] / falls[0] == pytest.approx(8, rel=1e-4)


def test_no_spare_head_makes_a_minimum(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,))
    assert linear.fixed_point_landscape(task, [0], heads=1).kind == "minimum"
    assert linear.fixed_point_landscape(task, [1], heads=1).kind == "strict saddle"


def test_a_spare_pair_makes_the_path_strict(make_task):
    task = make_task([0.5, 0.3, 0.2], lengths=(20,), rotation=3)
    found = linear.fixed_point_landscape(task, [0], heads=2, rank=2)
    value = linear.aligned_end(task, 0)
    assert found.kind == "strict saddle" and found.negative == 2
    np.testing.assert_allclose(found.eigenvalues[:2], [-2 * value * 0.09, -2 * value * 0.04], rtol=1e-12)
    # A pair at deviation u grows as exp(-h t/2), which is the law of escape.
    assert -found.eigenvalues[0] / 2 * linear.new_pair_time(task, 1, value, 1.0, np.e) == pytest.approx(1, rel=1e-12)
    assert linear.fixed_point_landscape(task, [0, 1], heads=2, rank=2).kind == "higher-order saddle"
    assert linear.fixed_point_landscape(task, [0, 1, 2], heads=2, rank=2).kind == "minimum"


@pytest.mark.parametrize("kwargs", [CORRELATED, {"variances": [0.4, 0.3, 0.2, 0.1], "rotation": 0}])
def test_merged_has_a_strict_saddle_and_a_minimum(make_task, kwargs):
    task = make_task(**kwargs)
    lam = task.covariance
    zero = linear.merged_landscape(task, heads=3)
    assert (zero.kind, zero.negative, zero.positive) == ("strict saddle", 3, 3)
    lowest = -2 * np.linalg.norm(lam @ task.task_covariance @ lam)
    np.testing.assert_allclose(zero.eigenvalues[:3], lowest, rtol=1e-12)
    assert -lowest / 2 == pytest.approx(linear.merged_escape_rate(task), rel=1e-14)
    end = linear.merged_landscape(task, heads=3, at="minimum")
    assert (end.kind, end.negative) == ("minimum", 0)
    # The loss sees D² directions of A, and no more.
    assert end.positive == lam.size


def test_refusals(make_task):
    task = make_task([0.5, 0.3, 0.2])
    with pytest.raises(InvalidInput, match="at least 2 heads"):
        linear.fixed_point_landscape(task, [0, 1, 2], heads=1, rank=2)
    with pytest.raises(InvalidInput, match="from 0 to 2"):
        linear.fixed_point_landscape(task, [3], heads=4)


@pytest.mark.parametrize("dim,noise", [(2, 0.0), (3, 0.3)])
def test_critical_rates_are_where_descent_begins_to_rise_and_to_cycle(dim: int, noise: float):
    lam = np.arange(dim, 0, -1.0)
    task = sw.InContextRegression(np.diag(lam / lam.sum()), 31, noise_variance=noise)
    rates = sw.theory.linear.merged_critical_rates(task)
    assert rates.catapult < rates.cycles
    # Finite steps leave v² a few per cent below |U|², so that catapults begin a little later than after flow.
    tried = [0.98 * rates.catapult, 1.05 * rates.catapult, 0.99 * rates.cycles, 1.01 * rates.cycles]
    start = sw.MergedAttention.random(dim=dim, heads=2, scale=1e-2, key=jax.random.key(1))
    models = sw.Ensemble.of([start] * len(tried))
    run = sw.descend(
        models, sw.Population(task), rate=tried, steps=20_000, record=sw.Record(snapshots=2), progress=False
    )
    excess = run.loss.values - sw.theory.linear.minimal_loss(task)
    rises = (np.diff(run.loss.values, axis=1) > 1e-6).any(axis=1)
    assert rises.tolist() == [False, True, True, True]
    assert np.all(excess[:3, -1] < 1e-9) and excess[3, -1] > 1e-3
