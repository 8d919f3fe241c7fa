"""Nonlinear targets cost what is predicted, and not what is predicted of something else."""

import numpy as np

from stepwell.papers.softmax_attention import nonlinear as figure

FIGURE = "softmax/nonlinear"


def test_another_length_in_the_prediction_fails(data, failing):
    found = data["losses"]
    other = figure.losses(figure.Settings(seeds=(0,), contexts=250), told=200)
    wrong = found.assign(first_order=other["first_order"])
    assert {"first-order-dim-20", "first-order-dim-50", "first-order-dim-100", "constant"} <= failing(
        {**data, "losses": wrong}
    )


def test_the_leading_order_is_not_enough(data, failing):
    found = data["losses"]
    assert {"first-order-dim-20", "first-order-dim-50"} <= failing(
        {**data, "losses": found.assign(first_order=found["leading"])}
    )


def test_another_power_of_the_dimension_fails(data, failing):
    along = data["overlaps"]
    assert failing({**data, "overlaps": along.assign(slope=along["slope"] + 0.25)}) == {
        "degree-1",
        "degree-2",
        "degree-3",
    }
    swapped = along["slope"].isel(degree=[0, 2, 1]).values
    wrong = along.assign(slope=(along["slope"].dims, swapped))
    assert failing({**data, "overlaps": wrong}) == {"degree-2", "degree-3"}


def test_a_centred_target_is_no_catastrophe(data, failing):
    found = data["losses"]
    names = found["target"].values.tolist()
    wrong = found["mean"].copy()
    wrong.loc[{"target": "1"}] = found["mean"].sel(target="he₁").values
    assert len(names) == 8
    assert failing({**data, "losses": found.assign(mean=wrong)}) == {"constant", "catastrophe"}


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
