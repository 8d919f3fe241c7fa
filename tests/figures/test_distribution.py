"""The values behind a claim."""

import pytest

from stepwell.figures import Origin
from stepwell.figures._distribution import Distribution, distribution

THEORY = Origin("theory", "a formula")


def shown(method: str = "close", **given) -> Distribution:
    made = distribution(getattr(THEORY, method)("one", "is one", basis="b", **given).as_json())
    assert made is not None
    return made


def test_one_value_has_no_distribution():
    assert distribution(THEORY.close("one", "is one", measured=1.0, basis="b").as_json()) is None
    assert distribution(THEORY.close("one", "is one", measured=[1.0], basis="b").as_json()) is None


def test_values_stand_where_they_are_between_the_ends_of_what_is_allowed():
    """The prediction is in the middle of the allowed interval; a value outside that, and no other, does not pass."""
    made = shown(predicted=1.0, measured=[0.9, 1.0, 1.05, 1.3], tolerance=0.1)
    low, high = made.allowed
    assert made.predicted == pytest.approx((low + high) / 2)
    assert [bar.passed for bar in made.bars] == [True, True, True, False]
    assert all(low - 1.2 <= bar.place <= high + 1.2 for bar in made.bars[:3]) and made.bars[3].place > high
    assert made.words == "median 1.02, from 0.9 to 1.3" and made.failing == "1.3"


def test_values_with_predictions_of_their_own_are_measured_in_tolerances():
    made = shown(predicted=[1.0, 10.0], measured=[1.5, 9.0], tolerance=[1.0, 2.0])
    assert made.scaled and made.words == "median 0, from −0.5 to 0.5"


def test_one_value_far_off_does_not_hide_the_others():
    made = shown(measured=[-0.9, 0.9, 100.0], tolerance=1.0)
    assert (
        made.bars[1].place - made.bars[0].place > 40 and made.bars[2].names == "100" and made.words.endswith("to 100")
    )


def test_an_interval_is_open_on_the_side_that_is_allowed():
    assert shown("at_most", predicted=1.0, measured=[0.4, 0.9]).allowed[0] == 0
    assert shown("at_least", predicted=1.0, measured=[1.4, 1.9]).allowed[1] == 100


def test_errors_over_decades_have_a_logarithmic_axis():
    made = shown("at_most", measured=[1e-15, 1e-12, 1e-9], tolerance=1e-6)
    assert made.logarithmic and made.predicted is None
    steps = [after.place - before.place for before, after in zip(made.bars, made.bars[1:], strict=False)]
    assert steps[0] == pytest.approx(steps[1], abs=2.4)


def test_few_integers_are_counted():
    assert shown(predicted=4.0, measured=[4.0, 4.0, 5.0]).words == "4 (2 of 3), 5 (1 of 3)"
    assert shown(predicted=[3.0, 4.0], measured=[3.0, 4.0]).words == "3 for 3 (1 of 2), 4 for 4 (1 of 2)"


def test_of_what_holds_or_does_not_the_failing_are_named():
    made = shown("fraction", holds=[True, False, True], labels=["seed 1", "seed 2", "seed 3"], required=0.5)
    assert made == Distribution("", failing="seed 2: 0")


def test_many_values_have_a_range_of_ninety_per_cent():
    assert "90 % of them from 6 to 96" in shown(predicted=50.5, measured=[*range(1, 102)], tolerance=60.0).words


def test_what_is_no_number_is_left_out_of_the_picture():
    made = shown(predicted=0.0, measured=[0.1, 0.2, float("nan")], tolerance=1.0)
    assert len(made.bars) == 2 and "not a number" in made.failing
