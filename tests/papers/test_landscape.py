"""The landscape holds, and each claim fails when its physics is broken."""

import jax
import numpy as np

from stepwell.papers.linear_attention import landscape
from stepwell.tasks import InContextRegression, covariance

FIGURE = "linear/landscape"


def task(context, eigenvalues=landscape.EIGENVALUES):
    return InContextRegression(covariance(eigenvalues, key=jax.random.key(0)), context)


def test_there_are_sixteen_points_of_three_kinds(data):
    kinds, counts = np.unique(data["points"]["kind"], return_counts=True)
    assert dict(zip(kinds.tolist(), counts.tolist(), strict=True)) == {
        "higher-order saddle": 4,
        "minimum": 1,
        "strict saddle": 11,
    }
    np.testing.assert_array_equal(data["points"]["negative"], data["points"]["predicted_negative"])


def test_the_theory_of_another_context_fails(data, failing):
    wrong = landscape.survey(task(31), 4, theory_task=task(15))
    assert failing({**data, "points": wrong}) >= {"hessian", "gradient", "loss"}


def test_the_wrong_sign_of_the_values_fails(data, failing):
    wrong = landscape.survey(task(31), 4, sign=-1.0)
    assert failing({**data, "points": wrong}) >= {"hessian", "gradient", "loss", "path"}


def test_another_spectrum_is_not_the_recorded_one(data, failing):
    wrong = landscape.survey(task(landscape.RECORDED_CONTEXT, (0.5, 0.31, 0.19)), 3)
    assert failing({**data, "recorded": wrong}) == {"recorded-digits"}


def test_a_point_off_the_path_without_a_negative_direction_fails(data, failing):
    points = data["points"].copy(deep=True)
    points["negative"][2] = 0
    assert failing({**data, "points": points}) == {"strict", "one-minimum"}


def test_a_way_down_of_second_order_fails(data, failing):
    points = data["points"].copy(deep=True)
    points["fall_near"] = points["fall_near"] * 10
    assert failing({**data, "points": points}) == {"third-order"}


def test_another_count_than_recorded_fails(data, failing):
    recorded = data["recorded"].copy(deep=True)
    recorded["negative"][3] += 1
    assert failing({**data, "recorded": recorded}) == {"recorded-counts"}


def test_the_drawing_has_two_panels_with_words(data):
    drawn = landscape.draw(data)
    assert len(drawn.axes) == 2
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
