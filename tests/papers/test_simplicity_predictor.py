"""Drops of six kinds of network are where they are predicted, and not elsewhere."""

import numpy as np
import pytest
import xarray as xr

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import predictor as figure

FIGURE = "simplicity/predictor"
JUDGED = figure.FIGURE.at(quick=True).kinds


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"kinds": "cubic", "scales": "1"}, {"limit-laws"}),
        ({"kinds": "convolutional,linear", "scales": "0.3", "seeds": "3"}, set()),
    ],
)
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives({"seeds": "3", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


def test_unknown_kinds_are_refused():
    with pytest.raises(InvalidInput, match="kinds has quartic"):
        figure.Settings(kinds=("linear", "quartic"))


@pytest.mark.parametrize("name", JUDGED)
def test_times_that_are_off_fail(data, failing, name: str):
    drops = data["drops"]
    off = 3 * figure.allowed(name, drops["scale"])
    moved = drops.assign(predicted=drops["predicted"] * (1 + off * (drops["kind"] == name)))
    assert f"{name.lower()}-times" in failing({"drops": moved})


def test_a_drop_that_does_not_come_fails(data, failing):
    drops = data["drops"].copy(deep=True)
    drops["measured"].loc[{"kind": "ReLU", "seed": 900, "number": 1}] = np.nan
    assert "relu-times" in failing({"drops": drops})


def test_a_drop_that_is_never_predicted_fails(data, failing):
    drops = data["drops"].copy(deep=True)
    drops["predicted"].loc[{"kind": "ReLU", "number": 2}] = np.nan
    assert "relu-times" in failing({"drops": drops})


def test_uncertainties_that_are_too_small_fail(data, failing):
    drops = data["drops"]
    smaller = drops.assign(uncertainty=drops["uncertainty"] / 1e3)
    assert failing({"drops": smaller}) - failing(data) == {"uncertainty"}


def test_many_ties_fail(data, failing):
    drops = data["drops"]
    assert "near-ties" in failing({"drops": drops.assign(tied=xr.ones_like(drops["tied"]))})


def test_a_limit_law_as_good_as_the_prediction_fails(data, failing):
    drops = data["drops"]
    assert failing({"drops": drops.assign(law=drops["measured"].isel(number=0))}) - failing(data) == {"limit-laws"}


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 3
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
