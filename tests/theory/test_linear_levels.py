"""Levels and fixed points: the reference values, the paper's formulae, and direct minimization."""

import copy
import itertools
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from stepwell._util.errors import InvalidInput
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear

EPS = np.finfo(float).eps

spectra = st.lists(st.floats(0.1, 2.0), min_size=1, max_size=5)


def rounding(task):
    """What solving with C can lose, per unit of loss."""
    return 100 * EPS * np.linalg.cond(linear.moments(task).second) * linear.moments(task).label_power


@pytest.mark.parametrize(
    "variances, expected",
    [
        (np.array([0.4, 0.3, 0.2, 0.1]), [1, 0.64057971, 0.37737216, 0.20980460, 0.13599507]),
        (
            1 / np.arange(1, 9) / np.sum(1 / np.arange(1, 9)),
            [1, 0.67146461, 0.51912286, 0.42443602, 0.35792293, 0.30788466, 0.26853215, 0.23659809, 0.21006888],
        ),
    ],
)
def test_reference_levels(make_task, variances, expected):
    # Eight digits are given, so the last may be off by half.
    np.testing.assert_allclose(linear.levels(make_task(variances, rotation=0)), expected, rtol=0, atol=5.0001e-9)


@given(variances=spectra, length=st.integers(1, 100))
def test_the_papers_case(make_task, variances, length):
    task = make_task(variances, lengths=(length,), rotation=1)
    lam = np.sort(variances)[::-1]
    gains = lam / (1 + (1 + lam.sum() / lam) / length)
    np.testing.assert_allclose(linear.components(task).gains, gains, rtol=0, atol=rounding(task))
    np.testing.assert_allclose(linear.escape_rates(task), lam**2, rtol=0, atol=rounding(task) * lam[0])
    best = np.linalg.inv(task.covariance + (task.covariance + lam.sum() * np.eye(lam.size)) / length)
    np.testing.assert_allclose(linear.minimizer(task), best, rtol=0, atol=rounding(task) * np.abs(best).max() / lam[-1])


@given(
    variances=st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3),
    task_variances=st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3),
    length=st.integers(1, 50),
    noise=st.floats(0.0, 3.0),
)
def test_every_subset_is_a_stationary_point_at_its_level(make_task, variances, task_variances, length, noise):
    task = make_task(variances, task_variances, lengths=(length,), noise=noise, rotation=1, task_rotation=2)
    _, cross, second, _ = linear.moments(task)
    for size in range(4):
        for learned in itertools.combinations(range(3), size):
            a = linear.fixed_point(task, learned).effective_map
            assert linear.loss_at(task, a) == pytest.approx(linear.fixed_point(task, learned).loss, abs=rounding(task))
            # No head in use is driven: G vanishes on the row and column space of A.
            drive = (cross - second @ a) @ task.covariance
            scale = rounding(task) * (1 + np.abs(a).max()) ** 2
            assert np.abs(drive @ a.T).max() < scale and np.abs(drive.T @ a).max() < scale
            assert np.linalg.matrix_rank(a, tol=1e-9 * (1 + np.abs(a).max())) == size
    steps = linear.levels(task)
    assert steps[0] == linear.moments(task).label_power
    assert steps[-1] == pytest.approx(linear.minimal_loss(task), abs=rounding(task))
    assert steps[-1] == pytest.approx(linear.loss_at(task, linear.minimizer(task)), abs=rounding(task))


@given(variances=spectra, data=st.data(), noise=st.floats(0.0, 3.0))
def test_shared_eigenvectors_give_the_same_gains(make_task, variances, data, noise):
    task_variances = data.draw(st.lists(st.floats(0.1, 2.0), min_size=len(variances), max_size=len(variances)))
    task = make_task(variances, task_variances, noise=noise, rotation=6)
    found = linear.modes(task)
    np.testing.assert_allclose(found.gains, linear.components(task).gains, rtol=0, atol=rounding(task))
    second = (found.directions * found.second) @ found.directions.T
    # Nearly equal variances leave the directions uncertain by up to the square root of rounding; gains feel its square.
    allowed = len(variances) * np.sqrt(EPS) * found.second.max()
    np.testing.assert_allclose(second, linear.moments(task).second, rtol=0, atol=allowed)


def test_equal_input_variances_take_the_tasks_eigenvectors(make_task):
    task = make_task([0.5, 0.5, 0.5], [3.0, 2.0, 1.0], rotation=7)
    np.testing.assert_allclose(linear.modes(task).task_variances, [3.0, 2.0, 1.0], rtol=1e-13)


@pytest.mark.parametrize("rank", [1, 2])
def test_no_map_of_the_rank_does_better(make_task, rank):
    task = make_task([1.0, 0.6, 0.3], [0.5, 2.0, 1.0], lengths=(8,), noise=0.4, rotation=1, task_rotation=2)

    def loss(flat):
        k, q = flat.reshape(2, rank, 3)
        return linear.loss_at(task, k.T @ q)

    rng = np.random.default_rng(0)
    found = min(minimize(loss, rng.normal(size=6 * rank)).fun for _ in range(4))
    # BFGS on differences of step sqrt(eps) leaves a gradient of about 1e-5 (its gtol), so a loss of its square.
    assert found == pytest.approx(linear.levels(task)[rank], abs=1e-8)


def test_refusals(make_task):
    skew = make_task([1.0, 0.5], [1.0, 3.0], rotation=1, task_rotation=2)
    with pytest.raises(InvalidInput, match="common eigenvectors"):
        linear.modes(skew)
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        linear.fixed_point(skew, [2])
    with pytest.raises(InvalidInput, match="singular"):
        linear.levels(make_task([1.0, 0.0]))


def test_a_rotated_covariance_keeps_small_eigenvalues():
    lam, vectors = np.array([1.0, 1e-6, 1e-12]), np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    along = InContextRegression(np.diag(lam), 31)
    turned = InContextRegression(covariance(lam, vectors), 31)
    for task in (turned, copy.deepcopy(turned), pickle.loads(pickle.dumps(turned))):
        np.testing.assert_allclose(linear.components(task).gains, linear.components(along).gains, rtol=100 * EPS)
        np.testing.assert_allclose(linear.levels(task), linear.levels(along), rtol=100 * EPS)
        np.testing.assert_allclose(linear.escape_rates(task), lam**2, rtol=100 * EPS)


def test_the_last_level_of_a_long_context_keeps_its_digits(make_task):
    # 1 - 1/(1 + 2/N), of which nothing is left if it is computed as that difference.
    task = make_task([1.0], lengths=(10**15,))
    assert linear.levels(task)[-1] == pytest.approx(2e-15, rel=1e-12)
    assert linear.minimal_loss(task) == pytest.approx(2e-15, rel=1e-12)
    assert linear.loss_at(task, linear.minimizer(task)) == pytest.approx(2e-15, rel=1e-12)


def test_eigenvalues_beyond_float64_are_refused():
    with pytest.raises(InvalidInput, match="other units"):
        linear.levels(InContextRegression(covariance([1e200]), 31))


def test_escape_rates_of_large_tasks_take_little_memory(make_task):
    """Of D matrices of D times D there would be 4 GB."""
    lam = 1 / np.arange(1, 801)
    tracemalloc.start()
    rates = linear.escape_rates(make_task(lam, rotation=None))
    assert tracemalloc.get_traced_memory()[1] < 2e8
    tracemalloc.stop()
    np.testing.assert_allclose(rates, lam**2, rtol=1e-12)
