"""Predictions for other tasks hold, and each claim fails when its physics is broken."""

import numpy as np

from stepwell.papers.linear_attention import beyond
from stepwell.tasks import InContextRegression

FIGURE = "linear/beyond"


def test_the_papers_formula_for_uncorrelated_tasks_fails(data, failing):
    task = beyond.tasks()["commuting"]
    plain = InContextRegression(task.covariance, beyond.CONTEXT)
    wrong = beyond.run(task, beyond.QUICK, theory_task=plain)
    assert failing({**data, "commuting": wrong}) >= {"commuting-levels", "commuting-order", "commuting-times"}


def test_forgotten_noise_fails(data, failing):
    task = beyond.tasks()["commuting"]
    quiet = InContextRegression(task.covariance, beyond.CONTEXT, task_covariance=task.task_covariance)
    wrong = beyond.run(task, beyond.QUICK, theory_task=quiet)
    assert "commuting-levels" in failing({**data, "commuting": wrong})


def test_times_that_are_a_tenth_late_fail(data, failing):
    commuting = data["commuting"]
    late = commuting.assign(measured_time=1.1 * commuting["measured_time"])
    assert failing({**data, "commuting": late}) == {"commuting-times"}


def test_plateaus_at_each_others_levels_fail(data, failing):
    rotated = data["rotated"].copy(deep=True)
    rotated["plateau_loss"] = rotated["plateau_loss"].roll(plateau=1)
    assert failing({**data, "rotated": rotated}) == {"rotated-levels"}


def test_components_out_of_turn_fail(data, failing):
    rotated = data["rotated"].copy(deep=True)
    rotated["learned"][0, 1] = [0, 1, 0, 0]
    assert failing({**data, "rotated": rotated}) == {"rotated-order"}


def test_a_drop_that_never_comes_fails(data, failing):
    rotated = data["rotated"].copy(deep=True)
    rotated["measured_time"][0, -1] = np.nan
    assert failing({**data, "rotated": rotated}) == {"rotated-times"}


def test_heads_that_change_places_fail(data, failing):
    rotated = data["rotated"].copy(deep=True)
    rotated["predicted_head"] = (("run", "drop"), rotated["predicted_head"].values[:, ::-1].copy())
    assert failing({**data, "rotated": rotated}) == {"rotated-heads"}


def test_a_plateau_too_many_fails(data, failing):
    rotated = data["rotated"]
    more = rotated.assign(plateaus=rotated["plateaus"] + 1)
    assert failing({**data, "rotated": more}) == {"rotated-plateaus"}


def test_the_error_that_is_allowed_vanishes_with_the_initial_weights():
    """Times are of order 1/w, errors of order ln(1/w)."""
    task = beyond.tasks()["rotated"]
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
