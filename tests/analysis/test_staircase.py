"""Plateaus and drops on curves whose steps are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.analysis import passage_time, staircase


def stairs(time, times, levels, width):
    """Logistic steps from level to level."""
    loss = np.full(time.size, float(levels[0]))
    for t, before, after in zip(times, levels[:-1], levels[1:], strict=True):
        loss -= (before - after) / (1 + np.exp(-np.clip((time - t) / width, -500, 500)))
    return loss


@given(
    falls=st.lists(st.floats(0.1, 1.0), min_size=1, max_size=5),
    waits=st.lists(st.floats(60.0, 2000.0), min_size=6, max_size=6),
)
def test_every_step_is_found(falls, waits):
    times = np.cumsum(waits)[: len(falls)]
    levels = np.concatenate([[0.0], -np.cumsum(falls)]) + 7.0
    time = np.linspace(0, times[-1] + waits[-1], 20001)
    found = staircase(time, stairs(time, times, levels, 2.0))
    assert len(found.drops) == len(falls)
    assert len(found.plateaus) == len(levels)
    # A logistic step passes half its fall at its own time; points are at most 0.6 apart.
    np.testing.assert_allclose([d.time for d in found.drops], times, atol=0.6)
    # A level is read within a band, 1/200 of the whole fall.
    np.testing.assert_allclose([p.level for p in found.plateaus], levels, atol=sum(falls) / 200)
    # From 10 % to 90 % a logistic takes 2 ln 9 widths.
    np.testing.assert_allclose([d.end - d.start for d in found.drops], 4 * np.log(9), atol=0.6)


@pytest.mark.parametrize("spacing", ["linear", "log"])
def test_the_spacing_of_points_does_not_matter(spacing):
    times, levels = np.array([10.0, 100.0, 3000.0]), np.array([1.0, 0.6, 0.3, 0.1])
    time = (
        np.linspace(0, 10000, 100001) if spacing == "linear" else np.concatenate([[0], np.geomspace(0.01, 1e4, 3000)])
    )
    loss = stairs(time, times, levels, 1.0)
    # Logarithmic points are half a per cent apart.
    np.testing.assert_allclose([d.time for d in staircase(time, loss).drops], times, rtol=0.005)


@pytest.mark.parametrize("seed", range(20))
def test_noise_makes_no_steps(seed):
    noise = 0.01 * np.random.default_rng(seed).normal(size=4001)
    time = np.linspace(0, 1000, 4001)
    levels = np.array([1.0, 0.6, 0.2])
    found = staircase(time, stairs(time, [300.0, 600.0], levels, 5.0) + noise)
    np.testing.assert_allclose([d.time for d in found.drops], [300, 600], atol=10)
    np.testing.assert_allclose([p.level for p in found.plateaus], levels, atol=0.04)
    assert staircase(time, 1 + noise).drops == ()


def test_curves_without_a_plateau():
    time = np.linspace(0, 30, 3001)
    decay = staircase(time, np.exp(-time))
    assert len(decay.drops) == 1 and len(decay.plateaus) == 1
    assert decay.plateaus[0].level == pytest.approx(0.0, abs=1 / 200)
    assert len(staircase(time, 1 - 0.01 * time).drops) == 0  # one speed throughout: nothing stands out


def test_a_run_cut_in_its_fall_ends_with_a_drop():
    time = np.linspace(0, 100, 2001)
    found = staircase(time, stairs(time, [100.0], [1.0, 0.0], 2.0))
    assert len(found.plateaus) == 1 and len(found.drops) == 1
    assert found.drops[0].after == pytest.approx(0.5)


def test_a_constant_is_one_plateau():
    found = staircase(np.array([0.0, 1.0, 2.0]), np.array([3.0, 3.0, 3.0]))
    assert found.drops == () and found.plateaus[0].level == 3.0


def test_contrast_decides_what_is_a_plateau():
    time = np.linspace(0, 100, 10001)
    # Speeds 1, 1/3, 1: slower in the middle by a factor of three.
    loss = 10 - np.cumsum(np.where((time > 10) & (time < 40), 1 / 3, np.where(time < 50, 1.0, 1e-6))) * 0.01
    assert len(staircase(time, loss, contrast=2.0).drops) == 2
    assert len(staircase(time, loss, contrast=4.0).drops) == 1


def test_passage_time_is_interpolated():
    time, loss = np.array([0.0, 1.0, 2.0]), np.array([4.0, 2.0, 3.0])
    assert passage_time(time, loss, 3.0) == 0.5
    assert passage_time(time, loss, 5.0) == 0.0
    assert np.isnan(passage_time(time, loss, 1.0))


@pytest.mark.parametrize(
    ("time", "loss"),
    [([0.0], [1.0]), ([1.0, 0.0], [1.0, 2.0]), ([0.0, 1.0], [1.0, np.nan])],
)
def test_curves_that_are_none_are_refused(time, loss):
    with pytest.raises(InvalidInput):
        staircase(np.array(time), np.array(loss))
