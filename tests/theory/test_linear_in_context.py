"""What a map does in context: the paper's regression, its limit, and the closest one to any map."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.theory import linear

EPS = np.finfo(float).eps

spectra = st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3)


def test_the_papers_regression(make_task):
    lam = np.array([0.4, 0.3, 0.2, 0.1])
    task = make_task(lam)
    for m in range(5):
        kept = np.arange(4) < m
        shrunk = np.where(kept, 1 / (lam * (1 + (1 + 1 / lam) / 31)), 0.0)
        np.testing.assert_allclose(linear.principal_component_regression_map(task, m), np.diag(shrunk), atol=1e-13)
        endless = linear.principal_component_regression_map(task, m, endless=True)
        np.testing.assert_allclose(task.covariance @ endless, np.diag(kept.astype(float)), atol=1e-13)


@given(variances=spectra, task_variances=spectra, noise=st.floats(0.0, 2.0), m=st.integers(0, 3))
def test_the_limit_is_that_of_long_contexts(make_task, variances, task_variances, noise, m):
    task = make_task(variances, task_variances, noise=noise, rotation=1, task_rotation=2)
    endless = linear.principal_component_regression_map(task, m, endless=True)
    length = 10**9
    long = make_task(variances, task_variances, noise=noise, lengths=(length,), rotation=1, task_rotation=2)
    gains = linear.components(long).gains
    if 0 < m < 3 and gains[m - 1] - gains[m] < 1e-3:
        return  # Nearly equal gains: which component comes first is a matter of rounding.
    # Each component's map is smaller than its limit by the fraction (1 + (tr(ΩΛ) + σ²)/s)/N.
    shrinkage = (1 + (linear.moments(task).label_power + noise) / gains[-1]) / length
    finite = linear.principal_component_regression_map(long, m)
    allowed = 3 * (shrinkage + 1e6 * EPS) * np.abs(linear.minimizer(long)).max()
    np.testing.assert_allclose(finite, endless, rtol=0, atol=allowed)
    # In the limit the prediction is wᵀ P x_q with a projector P of rank m.
    projector = task.covariance @ endless
    np.testing.assert_allclose(
        projector @ projector, projector, rtol=0, atol=1e4 * EPS * (1 + np.abs(projector).max()) ** 2
    )
    assert np.trace(projector) == pytest.approx(m, abs=1e-10)


@given(variances=spectra, task_variances=spectra, noise=st.floats(0.0, 2.0), length=st.integers(1, 60))
def test_components_do_not_depend_on_the_length(make_task, variances, task_variances, noise, length):
    task = make_task(variances, task_variances, noise=noise, lengths=(length,), rotation=1, task_rotation=2)
    root = np.linalg.cholesky(task.covariance)
    s = np.linalg.eigvalsh(root.T @ task.task_covariance @ root)[::-1]
    gains = s**2 / ((1 + 1 / length) * s + (linear.moments(task).label_power + noise) / length)
    scale = 100 * EPS * np.linalg.cond(linear.moments(task).second) * linear.moments(task).label_power
    np.testing.assert_allclose(linear.components(task).gains, gains, rtol=0, atol=scale)


def test_all_components_are_least_squares(make_task):
    task = make_task([1.2, 0.7, 0.3], [0.5, 2.0, 1.0], noise=0.3, rotation=1, task_rotation=2)
    np.testing.assert_allclose(
        linear.principal_component_regression_map(task, 3), linear.minimizer(task), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        linear.principal_component_regression_map(task, 3, endless=True),
        np.linalg.inv(task.covariance),
        rtol=0,
        atol=1e-12,
    )
    blind = make_task([0.5, 0.3, 0.2], [1.0, 1.0, 0.0])
    expected = np.diag([2.0, 1 / 0.3, 0.0])
    np.testing.assert_allclose(
        linear.principal_component_regression_map(blind, 3, endless=True), expected, rtol=0, atol=1e-12
    )


@given(variances=spectra, seed=st.integers(0, 1000), size=st.floats(0.0, 3.0))
def test_closest_against_all(make_task, variances, seed, size):
    task = make_task(variances, noise=0.3, rotation=1)
    effective_map = size * np.random.default_rng(seed).normal(size=(3, 3))
    maps = [linear.principal_component_regression_map(task, m) for m in range(4)]
    every = [linear.prediction_distance(task, effective_map, map_) for map_ in maps]
    found = linear.closest_pcr(task, effective_map)
    rounding = 1e3 * EPS * np.linalg.cond(linear.moments(task).second) * max(every)
    assert found.distance <= min(every) + rounding
    if np.all(np.diff(linear.components(task).gains) < -1e-6):
        assert found.distance == pytest.approx(min(every), abs=rounding)
        assert every[found.m] == pytest.approx(found.distance, abs=rounding)


def test_on_fresh_contexts(make_task):
    """On a plateau the model predicts as regression on two components does, given the covariance and much context."""
    task = make_task([0.5, 0.3, 0.2], lengths=(2000,), rotation=5)
    found = linear.closest_pcr(task, linear.fixed_point(task, [0, 1]).effective_map)
    assert found.m == 2 and found.distance < 1e-12 and abs(found.excess) < 1e-12
    rng = np.random.default_rng(0)
    samples = 200
    x = rng.multivariate_normal(np.zeros(3), task.covariance, (samples, 2001))
    w = rng.normal(size=(samples, 3))
    context, query = x[:, :-1], x[:, -1]
    beta = np.einsum("sni,snj,sj->si", context, context, w, optimize=True) / 2000
    predicted = np.einsum("si,ij,sj->s", beta, linear.fixed_point(task, [0, 1]).effective_map, query)
    kept = linear.modes(task).directions[:, :2]
    wanted = np.einsum("si,ij,sj->s", w, kept @ kept.T, query)
    squares = (predicted - wanted) ** 2
    # E(ŷ - wᵀPx)² = tr(AᵀCAΛ) - 2 tr(AᵀMPΛ) + tr(PΛP), the moments being exact.
    a, p, lam = linear.fixed_point(task, [0, 1]).effective_map, kept @ kept.T, task.covariance
    exact = np.trace(a.T @ linear.moments(task).second @ a @ lam - 2 * a.T @ lam @ p @ lam + p @ lam @ p)
    assert abs(squares.mean() - exact) < 5 * squares.std() / np.sqrt(samples)
    assert exact < 0.01 * linear.moments(task).label_power


def test_the_nearest_is_not_always_on_the_path(make_task):
    task = make_task([0.5, 0.3, 0.2], rotation=1)
    off_the_path = linear.fixed_point(task, [1]).effective_map
    assert linear.nearest_fixed_point(task, off_the_path).point.learned == (1,)
    closest = linear.closest_pcr(task, off_the_path)
    gains = linear.components(task).gains
    # One component too few, or one too many; the cheaper.
    assert closest.m == 0 and closest.distance == pytest.approx(np.sqrt(gains[1]), rel=1e-12)


def test_refusals(make_task):
    task = make_task([0.5, 0.3])
    with pytest.raises(InvalidInput, match="there are 2"):
        linear.principal_component_regression_map(task, 3)
    with pytest.raises(InvalidInput, match="at least 0"):
        linear.principal_component_regression_map(task, -1)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_difference_from_regression_within_the_context(make_task, noise):
    """Against sampled contexts, averaged over task vectors, queries and noise exactly."""
    lam, length, draws = np.array([0.5, 0.3, 0.2]), 12, 20000
    task = make_task(lam, lengths=(length,), noise=noise)
    x = np.random.default_rng(0).normal(size=(draws, length, 3)) * np.sqrt(lam)
    for m in range(4):
        shrunk = linear.principal_component_regression_map(task, m)
        inner = x[:, :, :m]
        solve = np.zeros((draws, 3, length))
        solve[:, :m] = np.linalg.solve(np.swapaxes(inner, 1, 2) @ inner, np.swapaxes(inner, 1, 2))
        # Both answers are x_qᵀ times a matrix times the labels, and those are X w + ε.
        apart = shrunk.T @ np.swapaxes(x, 1, 2) / length - solve
        each = np.sum(lam[:, None] * (apart @ x) ** 2, axis=(1, 2)) + noise * np.sum(
            lam[:, None] * apart**2, axis=(1, 2)
        )
        error = each.std() / draws**0.5
        assert linear.regression_difference(task, m) == pytest.approx(each.mean(), abs=4 * error + 1e-15)


def test_difference_from_regression_is_the_loss_for_all_components_and_goes_as_one_over_the_length(make_task):
    lam = np.array([0.4, 0.3, 0.2, 0.1])
    assert linear.regression_difference(make_task(lam), 4) == pytest.approx(linear.minimal_loss(make_task(lam)))
    for m in range(5):
        long = linear.regression_difference(make_task(lam, lengths=(10**7,)), m)
        assert 10**7 * long == pytest.approx((m + 1) * lam[:m].sum(), rel=1e-4)


def test_difference_from_regression_refuses_what_it_does_not_know(make_task):
    lam = [0.6, 0.4]
    with pytest.raises(InvalidInput, match="there are 2"):
        linear.regression_difference(make_task(lam), 3)
    for unknown in (make_task(lam, lengths=(3,)), make_task(lam, lengths=(9, 20)), make_task(lam, [1.0, 2.0])):
        with pytest.raises(InvalidInput, match="one length above 3 and task vectors with unit covariance"):
            linear.regression_difference(unknown, 2)
