"""The lower bound holds, and fails when the physics is broken."""

import numpy as np

from stepwell.papers.softmax_attention import _search
from stepwell.papers.softmax_attention import fig04_lower_bound as figure
from stepwell.papers.softmax_attention._sizes import like_tasks
from stepwell.tasks import MultiTaskRegression

FIGURE = "softmax/fig4"


def test_a_bound_that_is_too_high_fails(data, failing):
    searched = data["searched"]
    assert failing({**data, "searched": searched.assign(bound=1.01 * searched["bound"])}) == {"none-below"}


def test_the_bound_that_is_proved_is_not_sharp(data, failing):
    searched = data["searched"]
    assert failing({**data, "searched": searched.assign(bound=searched["proved"])}) == {"sharp"}


def test_another_noise_fails(data, monkeypatch, failing):
    """φ = 1.5 in place of 2."""
    monkeypatch.setattr(figure, "like_tasks", lambda ratio, tasks: like_tasks(ratio, tasks, 0.5))
    ratios = np.array(list(figure.REFERENCE))
    assert failing({**data, "table": figure.curves(ratios)}) == {"table"}


def test_as_many_heads_as_tasks_are_not_enough(data, failing):
    searched = data["searched"]
    heads, tasks, loss = searched["heads"].values, searched["tasks"].values, searched["loss"].values.copy()
    loss[heads == tasks + 1] = loss[heads == tasks]
    wrong = searched.assign(loss=(searched["loss"].dims, loss))
    assert failing({**data, "searched": wrong}) == {"sharp", "enough-heads"}


def test_the_last_head_does_something(data, failing):
    searched = data["searched"]
    heads, tasks, loss = searched["heads"].values, searched["tasks"].values, searched["loss"].values.copy()
    loss[heads == tasks] = 0.999 * loss[heads == tasks + 1]
    assert "last-head-helps" in failing({**data, "searched": searched.assign(loss=(searched["loss"].dims, loss))})


def test_other_levels_fail(data, failing):
    curve, trained = data["curves"], data["flows"]
    assert failing({**data, "flows": trained.assign(loss=1.5 * trained["loss"])}) == {"trained"}
    more = curve["bound"].copy()
    more.loc[{"heads": 100}] = 1.01 * curve["bound"].sel(heads=11)
    assert failing({**data, "curves": curve.assign(bound=more)}) == {"saturated"}
    assert failing({**data, "curves": curve.assign(flow=1.2 * curve["flow"])}) == {"factor"}
    assert "bayes-below" in failing({**data, "curves": curve.assign(bayes=1.1 * curve["bayes"])})


def test_slopes_of_the_search_are_derivatives():
    task = MultiTaskRegression((3, 5), (1.0, 2.0), 20, noise_variance=0.5)
    rng = np.random.default_rng(0)
    point, direction = rng.normal(0, 0.4, (2, 2, 3, 2))
    _, slopes = _search.loss_and_slope(task, *point)
    ends = [_search.loss_and_slope(task, *(point + step * direction))[0] for step in (1e-5, -1e-5)]
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, np.sum(slopes * direction), rtol=1e-7)


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data)
    assert len(drawn.axes) == 3
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
