"""All fixed points, one at a time, and the nearest: brute force over the subsets, and Monte Carlo for the metric."""

import dataclasses
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
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
        np.testing.assert_allclose(
            point.effective_map, linear.fixed_point(task, point.learned).effective_map, rtol=0, atol=0
        )
        assert point.loss == pytest.approx(
            linear.fixed_point(task, point.learned).loss, abs=10 * EPS * linear.moments(task).label_power
        )
    assert [point.learned for point in linear.fixed_points(task).path()] == [(), (0,), (0, 1), (0, 1, 2)]


def test_components_without_gain_make_no_points(make_task):
    task = make_task([0.5, 0.3, 0.2], [1.0, 1.0, 0.0], rotation=1)
    assert [point.learned for point in linear.fixed_points(task)] == [(), (0,), (1,), (0, 1)]
    assert linear.nearest_fixed_point(task, linear.minimizer(task)).point.learned == (0, 1)


@given(kwargs=tasks, seed=st.integers(0, 1000), size=st.floats(0.0, 3.0))
def test_nearest_against_all(make_task, kwargs, seed, size):
    task = make_task(**kwargs, rotation=1, task_rotation=2)
    effective_map = size * np.random.default_rng(seed).normal(size=(3, 3))
    # Written out here: the Frobenius norm between symmetric square roots.
    root_c, root_l = (_root(matrix) for matrix in (linear.moments(task).second, task.covariance))
    every = [
        np.linalg.norm(root_c @ (effective_map - linear.fixed_point(task, chosen).effective_map) @ root_l)
        for chosen in subsets(3)
    ]
    found = linear.nearest_fixed_point(task, effective_map)
    scale = max(every) * np.linalg.cond(linear.moments(task).second)
    # Equal gains allow points that the list does not have, so it may be beaten.
    gaps = np.diff(linear.components(task).gains)
    if np.all(gaps < -1e-6 * linear.moments(task).label_power):
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
    end = linear.minimizer(task)[0, 0]
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
    excess = linear.prediction_distance(task, first, linear.minimizer(task)) ** 2
    assert linear.loss_at(task, first) == pytest.approx(linear.minimal_loss(task) + excess, rel=1e-12)


def test_a_task_of_moments(make_task_of_moments):
    gains = [0.6, 0.4, 0.4, 0.0]
    task = make_task_of_moments(gains, 3, rest=0.2)
    lam, cross, second, _ = linear.moments(task)
    basis, points = linear.components(task), linear.fixed_points(task)
    # Rounding, times the condition numbers of C and Λ, which are two.
    close = {"rtol": 0, "atol": 1e-13}
    np.testing.assert_allclose(basis.gains, gains, **close)
    np.testing.assert_allclose(basis.keys.T @ second @ basis.keys, np.eye(4), **close)
    np.testing.assert_allclose(basis.maps, [np.outer(a, a) @ cross for a in basis.keys.T], **close)
    np.testing.assert_allclose(linear.minimizer(task), np.linalg.solve(second, cross), **close)
    assert points.count == 8
    for point in points:
        residual = (cross - second @ point.effective_map) @ lam
        np.testing.assert_allclose(point.effective_map.T @ residual, 0, **close)
        assert point.loss == pytest.approx(1.6 - sum(gains[d] for d in point.learned), abs=1e-13)
        assert linear.loss_at(task, point.effective_map) == pytest.approx(point.loss, abs=1e-13)
    other = np.random.default_rng(0).normal(size=(4, 4))
    loss = 1.6 + np.sum(other * ((second @ other - 2 * cross) @ lam))
    assert linear.loss_at(task, other) == pytest.approx(loss, rel=1e-13)
    distance = np.sqrt(np.sum(other * (second @ other @ lam)))
    assert linear.prediction_distance(task, other, 0 * other) == pytest.approx(distance, rel=1e-13)
    # Of equal gains, whichever the map has.
    mixed = np.array([[0.6, 0.8], [-0.8, 0.6]])
    keys = basis.keys[:, 1:3] @ mixed
    learned = basis.maps[0] + np.outer(keys[:, 0], keys[:, 0]) @ cross
    found, held = linear.shares(task, learned)
    np.testing.assert_allclose(held, [1, 1, 0, 0], **close)
    np.testing.assert_allclose(found.maps[:2].sum(axis=0), learned, **close)
    both = np.stack([learned, other])
    sums = [linear.shares(task, each)[1].sum() for each in both]
    np.testing.assert_allclose(linear.total_share(task, both), sums, **close)
    assert linear.nearest_fixed_point(task, learned).distance < 1e-13
    rates = [np.linalg.norm((cross - second @ basis.maps[:m].sum(axis=0)) @ lam, ord=2) for m in range(4)]
    np.testing.assert_allclose(linear.escape_rates(task), rates, **close)


def test_moments_that_are_singular_or_not_finite(make_task_of_moments):
    task = make_task_of_moments([0.5, 0.3], 0)
    singular = dataclasses.replace(task.own, input=np.ones((2, 2)), second=np.ones((2, 2)), cross=np.ones((2, 2)) / 2)
    flat = dataclasses.replace(task, own=singular)
    with pytest.raises(InvalidInput, match="singular"):
        linear.levels(flat)
    # In x = (a, a), β = (b, b) the answer is ab times the sum s of the entries of the map: the loss is 0.9 - 2s + s².
    assert linear.loss_at(flat, np.eye(2) / 4) == pytest.approx(0.9 - 2 * 0.5 + 0.5**2, rel=1e-13)
    broken = dataclasses.replace(task, own=dataclasses.replace(task.own, cross=np.full((2, 2), np.nan)))
    with pytest.raises(InvalidInput, match=r"cross of moments\(\) has the entry nan"):
        linear.levels(broken)
