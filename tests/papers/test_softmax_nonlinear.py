"""Nonlinear targets cost what is predicted, and not what is predicted of something else."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import nonlinear as figure

D20, D50, D100, FIRST, SECOND, THIRD, CONSTANT, CATASTROPHE = range(8)


@pytest.fixture(scope="module")
def data():
    return figure.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(figure.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_another_length_in_the_prediction_fails(data):
    found = data["losses"]
    other = figure.losses(figure.Settings(seeds=(0,), contexts=250), told=200)
    wrong = found.assign(first_order=other["first_order"])
    assert {D20, D50, D100, CONSTANT} <= failing({**data, "losses": wrong})


def test_the_leading_order_is_not_enough(data):
    found = data["losses"]
    assert {D20, D50} <= failing({**data, "losses": found.assign(first_order=found["leading"])})


def test_another_power_of_the_dimension_fails(data):
    along = data["overlaps"]
    assert failing({**data, "overlaps": along.assign(slope=along["slope"] + 0.25)}) == {FIRST, SECOND, THIRD}
    swapped = along["slope"].isel(degree=[0, 2, 1]).values
    wrong = along.assign(slope=(along["slope"].dims, swapped))
    assert failing({**data, "overlaps": wrong}) == {SECOND, THIRD}


def test_a_centred_target_is_no_catastrophe(data):
    found = data["losses"]
    names = found["target"].values.tolist()
    wrong = found["mean"].copy()
    wrong.loc[{"target": "1"}] = found["mean"].sel(target="he₁").values
    assert len(names) == 8
    assert failing({**data, "losses": found.assign(mean=wrong)}) == {CONSTANT, CATASTROPHE}


def test_the_mean_over_directions_is_that_of_drawn_directions():
    d, rng = 6, np.random.default_rng(0)
    directions = rng.standard_normal((400_000, d))
    rho = directions[:, 0] / np.linalg.norm(directions, axis=1)
    for k, name in ((1, "he₁"), (2, "he₂"), (3, "he₃")):
        values = figure.TARGETS[name].function(2.5 * rho) * rho**k
        found = figure._along(k, np.array([2.5]), d)[0]
        assert abs(values.mean() - found) < 4 * values.std() / values.size**0.5


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data)
    assert len(drawn.axes) == 3
    assert all(axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
