"""Fig 14 holds on a small sample, its exact moments are those of samples, and broken physics is noticed."""

import jax
import numpy as np
import pytest

from stepwell.papers.linear_attention import fig14_in_weight as fig14
from stepwell.papers.linear_attention._fig14_expectations import exact_moments, leading_mode
from stepwell.tasks import InContextInWeightMixture
from stepwell.theory import linear as theory

FIGURE = "linear/fig14"


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_exact_moments_are_those_of_samples(share):
    """Entry by entry within 5 standard errors: 1800 entries, of heavy tails."""
    lam = np.diag([0.5, 0.3])
    task = InContextInWeightMixture(lam, np.array([1.2, -0.7]), share, 5)
    features = task.sample(40000, key=jax.random.key(1)).full_features("none")
    phi, y = np.asarray(features.features), np.asarray(features.labels)[:, 0]
    exact = exact_moments(lam, task.fixed_task[:, 0], share, 5)
    products = phi[:, :, None] * phi[:, None]
    for each, expected in ((products, exact.gram), (y[:, None] * phi, exact.cross)):
        error = each.std(axis=0) / len(y) ** 0.5
        assert np.max(abs(each.mean(axis=0) - expected) / error) < 5


def test_with_every_task_new_the_minimum_is_that_of_the_theory():
    from stepwell.tasks import InContextRegression

    lam = np.diag([0.4, 0.3, 0.2, 0.1])
    exact = exact_moments(lam, np.ones(4), 1.0, 31)
    assert exact.loss(exact.minimiser()) == pytest.approx(theory.minimal_loss(InContextRegression(lam, 31)), rel=1e-10)


def test_the_first_mode_of_a_silent_context_leaves_two_over_n_plus_two():
    exact = exact_moments(np.eye(4) / 4, 2 * np.eye(4)[0], 0.0, 31)
    first = leading_mode(exact.gram, exact.cross, 4)
    assert exact.loss(first.theta) == pytest.approx(2 / 33, rel=1e-12)
    assert exact.loss(exact.minimiser()) < 2 / 33 / 4


def test_half_the_context_in_the_prediction_fails(data, failing):
    wrong, right = fig14.predict(fig14.prepare(fig14.QUICK), fig14.QUICK, context=15), data["theory"]
    mistaken = right.assign({name: wrong[name] for name in right if "_end_" in str(name) or name == "half_time"})
    expected = {
        "in-weight-end-at-0",
        "in-weight-end-at-0-sampled",
        "in-context-end-at-1",
        "in-context-end-at-1-sampled",
        "time-infinite",
        "time-sampled",
    }
    assert failing({**data, "theory": mistaken}) >= expected


def test_test_sets_exchanged_fail(data, failing):
    sampled = data["sampled"]
    names = dict(zip(fig14.TESTS, fig14.TESTS[::-1], strict=True))
    broken = failing({**data, "sampled": sampled.rename(names)})
    assert broken >= {
        "in-weight-end-at-0-sampled",
        "in-context-end-at-0-sampled",
        "in-context-end-at-1-sampled",
        "in-weight-end-at-1-sampled",
        "in-context-order",
        "in-weight-order",
        "given-up",
    }


def test_half_the_rate_fails(data, failing):
    late = data["sampled"].assign_coords(time=2 * data["sampled"]["time"])
    assert failing({**data, "sampled": late}) == {"time-sampled"}


def test_the_drawing_has_a_panel_for_each_share(data):
    drawn = fig14.draw(data)
    assert [axes.get_title(loc="left")[:9].strip(" :") for axes in drawn.axes][1] == "icl = 0.2"
    assert len(drawn.axes) == len(fig14.SHARES)
