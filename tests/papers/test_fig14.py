"""Fig 14 holds on a small sample, its exact moments are those of samples, and broken physics is noticed."""

import jax
import numpy as np
import pytest

from stepwell.papers.linear_attention import fig14_in_weight as fig14
from stepwell.papers.linear_attention._fig14_expectations import exact_moments, leading_mode
from stepwell.tasks import InContextInWeightMixture
from stepwell.theory import linear as theory

SMALL = fig14.Settings(seeds=(0,), sequences=2000, test_sequences=2000, rate=1e-3, steps=2000, record=10)
AT_0_WEIGHT, AT_0_WEIGHT_P, AT_0_CONTEXT, AT_0_CONTEXT_P = range(4)
AT_1_CONTEXT, AT_1_CONTEXT_P, AT_1_WEIGHT, AT_1_WEIGHT_P = range(4, 8)
ORDER_CONTEXT, ORDER_WEIGHT, TIME, TIME_P, GIVEN_UP = range(8, 13)


@pytest.fixture(scope="module")
def setup():
    return fig14.prepare(SMALL)


@pytest.fixture(scope="module")
def data(setup):
    return {
        "sampled": fig14.train(setup, SMALL),
        "infinite": fig14.train_on_infinite_data(setup, SMALL),
        "theory": fig14.predict(setup, SMALL),
    }


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(fig14.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


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


def test_half_the_context_in_the_prediction_fails(data, setup):
    wrong, right = fig14.predict(setup, SMALL, context=15), data["theory"]
    mistaken = right.assign({name: wrong[name] for name in right if "_end_" in str(name) or name == "half_time"})
    expected = {AT_0_WEIGHT, AT_0_WEIGHT_P, AT_1_CONTEXT, AT_1_CONTEXT_P, TIME, TIME_P}
    assert failing({**data, "theory": mistaken}) >= expected


def test_test_sets_exchanged_fail(data):
    sampled = data["sampled"]
    names = dict(zip(fig14.TESTS, fig14.TESTS[::-1], strict=True))
    broken = failing({**data, "sampled": sampled.rename(names)})
    assert broken >= {
        AT_0_WEIGHT_P,
        AT_0_CONTEXT_P,
        AT_1_CONTEXT_P,
        AT_1_WEIGHT_P,
        ORDER_CONTEXT,
        ORDER_WEIGHT,
        GIVEN_UP,
    }


def test_half_the_rate_fails(data):
    late = data["sampled"].assign_coords(time=2 * data["sampled"]["time"])
    assert failing({**data, "sampled": late}) == {TIME_P}


def test_the_drawing_has_a_panel_for_each_share(data):
    drawn = fig14.draw(data)
    assert [axes.get_title(loc="left")[:9].strip(" :") for axes in drawn.axes][1] == "icl = 0.2"
    assert len(drawn.axes) == len(fig14.SHARES)
