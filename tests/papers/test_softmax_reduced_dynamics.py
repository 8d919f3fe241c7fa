"""Fig 3 of the softmax paper holds, and fails when the physics is broken."""

import numpy as np

from stepwell.papers.softmax_attention import fig03_reduced_dynamics as fig03

FIGURE = "softmax/fig3"


def test_another_context_in_training_fails(data, failing):
    """ω ends at d^{-1/2} whatever L is; all else knows L."""
    assert failing({**data, "course": fig03.course(context=150)}) >= {
        "half",
        "overshoot",
        "same-course",
        "mu-end",
        "slow-rate",
    }


def test_the_half_squared_loss_fails(data, failing):
    """Times double."""
    course = data["course"]
    slower = course.assign_coords(time=2 * course["time"])
    assert failing({**data, "course": slower}) >= {"half", "reduced-half"}


def test_the_reduced_equation_in_place_of_the_full_one_fails(data, failing):
    course = data["course"]
    wrong = course.assign(omega=course["reduced_omega"], mu=course["reduced_mu"])
    assert failing({**data, "course": wrong}) >= {"half", "overshoot", "same-course"}


def test_an_error_that_falls_as_the_root_of_kappa_fails(data, failing):
    sweep = data["sweep"]
    full = sweep["time"].sel(system="reduced") * (1 + 0.1 * sweep["kappa"] ** 0.5)
    wrong = np.stack([full.values, sweep["time"].sel(system="reduced").values], axis=1)
    assert failing({**data, "sweep": sweep.assign(time=(("kappa", "system"), wrong))}) == {"exponent"}


def test_the_drawing_has_five_panels_with_words(data):
    drawn = fig03.draw(data)
    assert len(drawn.axes) == 5
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
