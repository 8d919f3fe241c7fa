"""Phases of curves whose phases are known, and heads whose tasks are known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.analysis import head_task_allocation, phases


def logistic(time, at, width, high, low):
    return low + (high - low) / (1 + np.exp(np.clip((time - at) / width, -500, 500)))


@settings(max_examples=30)
@given(at=st.floats(200.0, 800.0), width=st.floats(1.0, 5.0), high=st.floats(1.0, 50.0), fall=st.floats(0.1, 0.99))
def test_the_phases_of_a_logistic(at, width, high, fall):
    time = np.linspace(0, 1000, 2001)
    found = phases(time, logistic(time, at, width, high, high * (1 - fall)))
    assert found is not None
    # A logistic has 10 % of its fall behind it ln 9 widths before its middle; points are 0.5 apart.
    expected = [0.0, at - width * np.log(9), at + width * np.log(9), 1000.0]
    spans = [found.warm_up, found.emergence, found.convergence]
    np.testing.assert_allclose([*(phase.start for phase in spans), spans[-1].end], expected, atol=0.5)
    assert [phase.end for phase in spans[:-1]] == [phase.start for phase in spans[1:]]
    assert found.half == pytest.approx(at, abs=0.5)
    assert (found.warm_up.before, found.convergence.after) == pytest.approx((high, high * (1 - fall)))


def test_the_spacing_of_points_does_not_matter():
    time = np.concatenate([[0.0], np.geomspace(1.0, 1000.0, 4000)])
    found = phases(time, logistic(time, 300.0, 10.0, 2.0, 1.0))
    assert found is not None and found.half == pytest.approx(300.0, abs=0.6)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_noise_of_up_to_a_fifth_of_the_fall_moves_phases_little(seed, noise):
    time = np.linspace(0, 100, 1001)
    rough = noise * np.random.default_rng(seed).normal(size=time.size)
    found = phases(time, logistic(time, 55.0, 2.0, 1.0, 0.0) + rough)
    assert found is not None
    # Levels have a standard error of 0.02, so a tenth of the fall is passed between 5 and 15 %: ln(19/9) widths off.
    # On a slope s the nearest falling curve errs by (noise^2 s dt/2)^(1/3) about, on top; four of that are allowed.
    for part, expected in ((0.1, 55 - 2 * np.log(9)), (0.5, 55.0), (0.9, 55 + 2 * np.log(9))):
        slope = part * (1 - part) / 2
        off = ({0.1: 2 * np.log(19 / 9), 0.5: 2 * np.log(0.55 / 0.45), 0.9: 2 * np.log(19 / 9)})[part]
        measured = {0.1: found.emergence.start, 0.5: found.half, 0.9: found.emergence.end}[part]
        assert abs(measured - expected) <= off + 4 * (noise**2 * slope * 0.1 / 2) ** (1 / 3) / slope


@pytest.mark.parametrize("seed", range(20))
def test_noise_as_of_small_batches_hides_no_phases(seed):
    """Noise in proportion to the loss, as the loss of a batch has, an eighth of the fall at the start."""
    time = np.linspace(0, 12, 301)
    curve = logistic(time, 6.0, 0.3, 30.0, 9.0)
    found = phases(time, curve * (1 + 0.09 * np.random.default_rng(seed).normal(size=time.size)))
    assert found is not None
    assert abs(found.half - 6.0) < 0.3


@pytest.mark.parametrize("seed", range(10))
def test_curves_without_three_phases(seed):
    time = np.linspace(0, 100, 1001)
    noise = 0.05 * np.random.default_rng(seed).normal(size=time.size)
    none = {
        "constant": np.ones_like(time),
        "rising": time / 100,
        "linear": 1 - time / 100,
        "exponential": np.exp(-time / 10),
        "two drops": logistic(time, 30, 1, 1.0, 0.5) + logistic(time, 70, 1, 0.5, 0.0),
        "cut in its fall": logistic(time, 100, 2, 1.0, 0.0),
        "cut before its fall": logistic(time, 200, 2, 1.0, 0.0),
    }
    for name, curve in none.items():
        assert phases(time, curve) is None, name
        assert phases(time, curve + noise) is None, name


def test_contrast_decides():
    time = np.linspace(0, 100, 10001)
    curve = np.interp(time, [0, 30, 70, 100], [1.0, 0.9, 0.1, 0.0])  # the outer bands take 30, the others 5 each
    assert phases(time, curve, contrast=5.0) is not None
    assert phases(time, curve, contrast=7.0) is None


@pytest.mark.parametrize(("time", "loss"), [([0.0], [1.0]), ([1.0, 0.0], [1.0, 2.0]), ([0.0, 1.0], [1.0, np.nan])])
def test_curves_that_are_none_are_refused(time, loss):
    with pytest.raises(InvalidInput):
        phases(np.array(time), np.array(loss))


def test_heads_and_tasks():
    omega = np.array([[0.3, 0.01, 0.2], [0.01, 0.3, 0.01]])
    mu = np.array([[2.5, 0.01, 3.0], [0.5, -2.0, 0.1]])
    found = head_task_allocation(omega, mu)
    np.testing.assert_array_equal(found.head, [0, 1, 0])
    np.testing.assert_allclose(found.share, [0.75 / 0.755, 0.6 / 0.6001, 0.6 / 0.601])
    assert found.heads_used == 2 and not found.one_to_one


def test_along_a_run_tasks_find_their_heads():
    growth = np.array([0.1, 1.0])[:, None, None]
    found = head_task_allocation(growth * np.eye(3)[[2, 0, 1]], np.broadcast_to(np.ones((3, 3)) * 0.9, (2, 3, 3)))
    np.testing.assert_array_equal(found.head, [[-1, -1, -1], [1, 2, 0]])
    np.testing.assert_array_equal(found.one_to_one, [False, True])
    np.testing.assert_array_equal(found.heads_used, [0, 3])


@given(st.permutations(range(4)))
def test_every_permutation_is_read_back(order):
    found = head_task_allocation(0.3 * np.eye(4)[:, order] + 0.01, 2 * np.eye(4)[:, order] + 0.01)
    # Column i of the permuted identity has its one in row order[i].
    np.testing.assert_array_equal(found.head, order)
    assert found.one_to_one


def test_shapes_must_agree():
    with pytest.raises(InvalidInput, match="heads, tasks"):
        head_task_allocation(np.ones((2, 3)), np.ones((3, 2)))
