"""Predictions for other tasks hold, and each claim fails when its physics is broken."""

import numpy as np
import pytest

from stepwell.papers.linear_attention import beyond
from stepwell.tasks import InContextRegression

PLATEAUS, LEVELS, ORDER, HEADS, TIMES = range(5)
SMALL = beyond.Settings(seeds=(0,), points=300)


@pytest.fixture(scope="module")
def data():
    return {name: beyond.run(task, SMALL) for name, task in beyond.tasks().items()}


def failing(found) -> set[int]:
    return {place for place, claim in enumerate(beyond._claims("a task", found)) if not claim.passed}


def test_all_claims_hold(data):
    assert all(claim.passed for claim in beyond.claims(data))
    assert len(beyond.claims(data)) == 10


def test_the_papers_formula_for_uncorrelated_tasks_fails():
    task = beyond.tasks()["commuting"]
    plain = InContextRegression(task.covariance, beyond.CONTEXT)
    assert failing(beyond.run(task, SMALL, told=plain)) >= {LEVELS, ORDER, TIMES}


def test_forgotten_noise_fails():
    task = beyond.tasks()["commuting"]
    quiet = InContextRegression(task.covariance, beyond.CONTEXT, task_covariance=task.task_covariance)
    assert LEVELS in failing(beyond.run(task, SMALL, told=quiet))


def test_times_that_are_a_tenth_late_fail(data):
    found = data["commuting"]
    assert failing(found.assign(measured_time=1.1 * found["measured_time"])) == {TIMES}


def test_a_drop_that_never_comes_fails(data):
    found = data["turned"].copy(deep=True)
    found["measured_time"][0, -1] = np.nan
    assert failing(found) == {TIMES}


def test_heads_that_change_places_fail(data):
    found = data["turned"].copy(deep=True)
    found["predicted_head"] = (("run", "drop"), found["predicted_head"].values[:, ::-1].copy())
    assert failing(found) == {HEADS}


def test_a_plateau_too_many_fails(data):
    found = data["turned"]
    assert failing(found.assign(plateaus=found["plateaus"] + 1)) == {PLATEAUS}


def test_the_error_that_is_allowed_vanishes_with_the_initial_weights():
    """Times are of order 1/w, errors of order ln(1/w)."""
    task = beyond.tasks()["turned"]
    times = np.array([[1.0, 2.0, 4.0, 8.0]])
    parts = [
        beyond.drop_time_errors(task, init, times / init) * init / times - beyond.STEPS * beyond.RTOL
        for init in (1e-4, 1e-8)
    ]
    assert np.all(parts[1] < 3e-4 * parts[0])


def test_the_drawing_has_four_panels_with_words(data):
    drawn = beyond.draw(data)
    assert len(drawn.axes) == 4
    assert all(axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
