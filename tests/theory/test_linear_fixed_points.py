"""All fixed points, one at a time, and the nearest: brute force over the subsets, and Monte Carlo for the metric."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.theory import linear

EPS = np.finfo(float).eps

tasks = st.fixed_dictionaries(
    {
        "variances": st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3),
        "task_variances": st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3),
        "lengths": st.tuples(st.integers(1, 60)),
        "noise": st.floats(0.0, 2.0),
    }
)


def subsets(dim):
    return [chosen for size in range(dim + 1) for chosen in itertools.combinations(range(dim), size)]


def test_thirty_dimensions_are_lazy(make_task):
    task = make_task(1 / np.arange(1, 31), rotation=0)
    found = linear.fixed_points(task)
    assert found.count == 2**30
    tracemalloc.start()
    size, learned = 0, ()
    for point in itertools.islice(found, 3000):
        size, learned = max(size, tracemalloc.get_traced_memory()[0]), point.learned
    tracemalloc.stop()
    # One point holds a map of 7 kB; a list of these alone would hold 20 MB.
    assert size < 1e6
    # After none, 30 alone and 435 pairs, the triples.
    assert len(learned) == 3
    first = [point.learned for point in itertools.islice(found, 33)]
    assert first == [(), *((d,) for d in range(30)), (0, 1), (0, 2)]
    steps = [point.loss for point in found.path()]
    np.testing.assert_allclose(steps, linear.levels(task), rtol=0, atol=100 * EPS * steps[0])


@given(kwargs=tasks)
def test_every_subset_once(make_task, kwargs):
    task = make_task(**kwargs, rotation=1, task_rotation=2)
    found = list(linear.fixed_points(task))
    assert [point.learned for point in found] == subsets(3)
    for point in found:
        np.testing.assert_allclose(point.effective_map, linear.fixed_point(task, point.learned), rtol=0, atol=0)
        assert point.loss == pytest.approx(linear.level(task, point.learned), abs=10 * EPS * linear.label_power(task))
    assert [point.learned for point in linear.fixed_points(task).path()] == [(), (0,), (0, 1), (0, 1, 2)]


def test_components_without_gain_make_no_points(make_task):
    task = make_task([0.5, 0.3, 0.2], [1.0, 1.0, 0.0], rotation=1)
    assert [point.learned for point in linear.fixed_points(task)] == [(), (0,), (1,), (0, 1)]
    assert linear.nearest_fixed_point(task, linear.minimiser(task)).point.learned == (0, 1)


@given(kwargs=tasks, seed=st.integers(0, 1000), size=st.floats(0.0, 3.0))
def test_nearest_against_all(make_task, kwargs, seed, size):
    task = make_task(**kwargs, rotation=1, task_rotation=2)
    effective_map = size * np.random.default_rng(seed).normal(size=(3, 3))
    # Written out here: the Frobenius norm between symmetric square roots.
    root_c, root_l = (_root(matrix) for matrix in (linear.second_moment(task), task.covariance))
    every = [
        np.linalg.norm(root_c @ (effective_map - linear.fixed_point(task, chosen)) @ root_l) for chosen in subsets(3)
    ]
    found = linear.nearest_fixed_point(task, effective_map)
    scale = max(every) * np.linalg.cond(linear.second_moment(task))
    # Equal gains allow points that the list does not have, so it may be beaten.
    gaps = np.diff(linear.component_gains(task))
    if np.all(gaps < -1e-6 * linear.label_power(task)):
        assert found.distance == pytest.approx(min(every), abs=1e3 * EPS * scale)
        assert every[subsets(3).index(found.point.learned)] == pytest.approx(found.distance, abs=1e3 * EPS * scale)
    else:
        assert found.distance <= min(every) + 1e3 * EPS * scale


def _root(matrix):
    lam, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(lam)) @ vectors.T


def test_equal_gains_are_turned(make_task):
    task = make_task(np.full(3, 0.4), lengths=(20,))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    end = linear.minimiser(task)[0, 0]
    found = linear.nearest_fixed_point(task, end * turn[:, :2] @ turn[:, :2].T)
    assert found.point.learned == (0, 1) and found.distance < 100 * EPS
    assert found.point.loss == pytest.approx(linear.levels(task)[2], rel=1e-14)
    assert linear.closest_pcr(task, end * turn[:, :1] @ turn[:, :1].T).m == 1


def test_distance_is_that_of_predictions(make_task):
    task = make_task([1.0, 0.6, 0.3], [0.5, 2.0, 1.0], lengths=(6,), noise=0.7, rotation=1, task_rotation=2)
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 3, 3))
    samples = 40_000
    x = rng.multivariate_normal(np.zeros(3), task.covariance, (samples, 7))
    w = rng.multivariate_normal(np.zeros(3), task.task_covariance, samples)
    labels = np.einsum("sni,si->sn", x[:, :6], w) + np.sqrt(0.7) * rng.normal(size=(samples, 6))
    beta = np.einsum("sn,sni->si", labels, x[:, :6]) / 6
    squares = np.einsum("si,ij,sj->s", beta, first - second, x[:, 6]) ** 2
    error = squares.std() / np.sqrt(samples)
    assert abs(squares.mean() - linear.prediction_distance(task, first, second) ** 2) < 5 * error
    excess = linear.prediction_distance(task, first, linear.minimiser(task)) ** 2
    assert linear.loss_at(task, first) == pytest.approx(linear.minimal_loss(task) + excess, rel=1e-12)
