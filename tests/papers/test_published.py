"""The rules for published curves have the level they are said to have, and notice what is wrong."""

import numpy as np
import pytest

from stepwell.papers.linear._published import (
    ALLOWED_OUTSIDE,
    DROPS,
    LOSS_ERROR,
    PUBLISHED_RUNS,
    STEP_ERROR,
    chance_outside,
    curve_claim,
    points_outside,
    published,
    published_drops,
    runs_outside,
)

STEPS = np.arange(0.0, 1001.0, 10.0)


def curves(rng: np.random.Generator, count: int) -> np.ndarray:
    """One drop each, at a random step, from and to random levels."""
    at, high, low = rng.normal(500, 60, count), rng.normal(1, 0.05, count), rng.normal(0.2, 0.02, count)
    return low[:, None] + (high - low)[:, None] / (1 + np.exp((STEPS - at[:, None]) / 20))


def as_points(curve: np.ndarray) -> np.ndarray:
    return np.stack([STEPS, curve], axis=1)


def test_a_curve_of_the_same_kind_fails_with_the_stated_probability():
    """At most 1/(n + 1); 400 trials with n = 9 have a standard error of 1.5 %."""
    rng, failed = np.random.default_rng(0), 0
    for _ in range(400):
        drawn = curves(rng, 10)
        counts = points_outside(STEPS, drawn[1:], as_points(drawn[0]))
        failed += not curve_claim("published", "it is", "Fig 1", counts, len(STEPS)).passed
    assert failed / 400 < 1 / 10 + 3 * (0.1 * 0.9 / 400) ** 0.5


def test_a_late_curve_fails_and_one_within_the_reading_error_does_not():
    drawn = curves(np.random.default_rng(1), 24)
    for curve, passes in (
        (np.interp(STEPS / 1.5, STEPS, drawn[0]), False),
        (drawn[0] + 0.3, False),
        (drawn.max(axis=0) + 0.9 * LOSS_ERROR, True),
        (np.interp(STEPS - 0.9 * STEP_ERROR, STEPS, drawn.max(axis=0)), True),
    ):
        counts = points_outside(STEPS, drawn, as_points(curve))
        assert curve_claim("published", "it is", "Fig 1", counts, len(STEPS)).passed == passes


def test_one_seed_has_no_range():
    drawn = curves(np.random.default_rng(1), 2)
    counts = points_outside(STEPS, drawn[:1], as_points(drawn[1]))
    assert not curve_claim("published", "it is", "Fig 1", counts, len(STEPS)).judged()


def test_the_chance_of_runs_outside_is_that_of_draws():
    rng = np.random.default_rng(2)
    ours, theirs = rng.normal(size=(20_000, 8)), rng.normal(size=(20_000, 3))
    outside = (theirs < ours.min(axis=1, keepdims=True)) | (theirs > ours.max(axis=1, keepdims=True))
    for allowed in range(3):
        share = np.mean(outside.sum(axis=1) > allowed)
        expected = chance_outside(8, 3, allowed)
        assert abs(share - expected) < 4 * (expected * (1 - expected) / 20_000) ** 0.5


def test_thirty_seeds_make_a_level_below_five_per_cent():
    assert len(DROPS) * chance_outside(30, PUBLISHED_RUNS, ALLOWED_OUTSIDE) < 0.05


def test_published_drops_are_of_six_runs_at_the_most():
    groups = published_drops()
    assert [int(rows[:, 2].sum()) for rows in groups] == [6, 4, 5, 5]
    assert np.isinf(groups[-1][-1, 0]) and all(np.all(rows[:, 0] <= rows[:, 1]) for rows in groups)


@pytest.mark.parametrize(
    "ours, outside",
    [
        ([310, 805], 0),
        ([515, 1220], 5),  # the cluster of five
        ([400, 805], 1),  # of the cluster only its end is known to be outside
        ([310, 450], 2),
    ],
)
def test_runs_of_the_first_drop_outside(ours, outside):
    assert runs_outside(published_drops()[0], np.array(ours, float)) == outside


def test_a_run_that_has_not_finished_is_outside_where_all_of_ours_have():
    fourth = published_drops()[3]
    assert runs_outside(fourth, np.array([3000.0, 9000.0])) == 1
    assert runs_outside(fourth, np.array([3000.0, np.inf])) == 0


def test_curves_are_where_they_are_said_to_be():
    read = published("fig1_attnM", "fig14_icl0.0_ic")
    assert read["fig1_attnM"][0, 1] == pytest.approx(1.0, abs=0.05) and read["fig1_attnM"][-1, 0] > 5900
    assert read["fig14_icl0.0_ic"][-1, 1] > 2
