"""Predictions for other tasks hold, and each claim fails when its physics is broken."""

import dataclasses

import numpy as np
import pytest

from stepwell.papers.linear import beyond
from stepwell.tasks import InContextRegression

FIGURE = "linear/beyond"
QUICK = beyond.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    "changes, unjudged",
    [
        ({"seeds": "40,41", "context": "3", "noise": "0"}, set()),
        ({"seeds": "40", "task_eigenvalues": "1,0,1.5,0.8"}, set()),  # a component without a gain
        ({"task_eigenvalues": "0,0,1,0", "steps": "1"}, set()),
        ({"task_eigenvalues": "1,1,1,4"}, {"commuting-levels"}),  # components of one gain
    ],
)
def test_other_settings(survives, changes, unjudged):
    claims = survives({"points": "50", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert all(claim.passed or name in unjudged for name, claim in claims.items())


def test_initial_weights_that_are_not_small_fail(survives):
    """The schedule is not theirs: no plateau lasts that long, and heads grow in another order."""
    claims = survives({"points": "50", "init": "0.1"})
    assert not claims["rotated-levels"].judged()
    assert not claims["commuting-heads"].passed and not claims["commuting-order"].passed


def test_the_papers_formula_for_uncorrelated_tasks_fails(data, failing):
    task = QUICK.tasks["commuting"]
    plain = InContextRegression(task.covariance, QUICK.context)
    wrong = beyond.run(task, QUICK, theory_task=plain)
    assert failing({**data, "commuting": wrong}) >= {"commuting-levels", "commuting-order", "commuting-times"}


def test_forgotten_noise_fails(data, failing):
    task = QUICK.tasks["commuting"]
    quiet = InContextRegression(task.covariance, QUICK.context, task_covariance=task.task_covariance)
    wrong = beyond.run(task, QUICK, theory_task=quiet)
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
    task = QUICK.tasks["rotated"]
    times = np.array([[1.0, 2.0, 4.0, 8.0]])
    parts = [
        beyond.drop_time_errors(task, dataclasses.replace(QUICK, init=init), times / init) * init / times
        - QUICK.steps * beyond.RTOL
        for init in (1e-4, 1e-8)
    ]
    assert np.all(parts[1] < 3e-4 * parts[0])


def test_the_drawing_has_four_panels_with_words(data):
    drawn = beyond.draw(data, QUICK)
    assert len(drawn.axes) == 4
    assert all(axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
