"""Linear networks learn mode after mode at the times predicted, and not at those of other predictions."""

import pytest

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import directions as figure

FIGURE = "simplicity/directions"


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"strengths": "1", "scales": "1e-3"}, {"whole-flow", "closest-approach"}),
        ({"strengths": "1,0.4", "scales": "1e-3,1e-4", "smallest": "1e-3"}, {"exponents"}),
    ],
)
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives({"seeds": "3", "drawn": "20", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


@pytest.mark.parametrize(("name", "value"), [("units", 3), ("strengths", (0.5, 1.0))])
def test_settings_without_a_prediction_are_refused(name: str, value):
    with pytest.raises(InvalidInput, match=name):
        figure.Settings(**{name: value})


def test_another_exponent_fails(data, failing):
    field = data["field"]
    wrong = field.assign(rest=field["rest"] * field["scale"] ** 0.01)
    assert failing({**data, "field": wrong}) == {"exponents"}


def test_the_second_of_two_unequal_fast_modes_is_not_left(data, failing):
    """Of s = 1, 0.7, 0.3 and r = 2 the exponent is 1 − s_3/s_1 = 0.7, and not 1 − s_2/s_1."""
    field = data["field"]
    two = field["spectrum"] == "1, 0.7, 0.3"
    assert field["exponent"].values[two] == pytest.approx(0.7)
    assert failing({**data, "field": field.assign(exponent=field["exponent"].where(~two, 0.2))}) == {"exponents"}


@pytest.mark.parametrize(("name", "claim"), [("rest", "whole-flow"), ("least", "closest-approach")])
def test_another_power_of_the_scale_fails(data, failing, name: str, claim: str):
    run = data["flow"]
    assert failing({**data, "flow": run.assign({name: run[name] * run["scale"] ** 0.05})}) == {claim}


def test_times_without_what_is_orthogonal_fail(data, failing):
    """As if the second mode grew from all of its part in the initial weights."""
    run = data["flow"]
    late = run["predicted"] - 0.3 * (run["mode"] == 2)
    assert failing({**data, "flow": run.assign(predicted=late)}) == {"drop-times"}


def test_a_curve_that_is_off_fails(data, failing):
    run = data["flow"]
    assert failing({**data, "flow": run.assign(error=100 * run["error"])}) == {"whole-curve"}


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 3
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
