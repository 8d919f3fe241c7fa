"""Fig 3 of the softmax paper holds, and fails when the physics is broken."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import fig03_reduced_dynamics as fig03

KAPPA, HALF, REDUCED_HALF, OVERSHOOT, FASTEST, WHERE, SAME, OMEGA, MU, RATE, EXPONENT, SIGN = range(12)


@pytest.fixture(scope="module")
def data():
    return fig03.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(fig03.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_another_context_in_training_fails(data):
    """ω ends at d^{-1/2} whatever L is; all else knows L."""
    assert failing({**data, "course": fig03.course(context=150)}) >= {HALF, OVERSHOOT, SAME, MU, RATE}


def test_the_half_squared_loss_fails(data):
    """Times double."""
    course = data["course"]
    slower = course.assign_coords(time=2 * course["time"])
    assert failing({**data, "course": slower}) >= {HALF, REDUCED_HALF}


def test_the_reduced_equation_in_place_of_the_full_one_fails(data):
    course = data["course"]
    wrong = course.assign(omega=course["reduced_omega"], mu=course["reduced_mu"])
    assert failing({**data, "course": wrong}) >= {HALF, OVERSHOOT, SAME}


def test_an_error_that_falls_as_the_root_of_kappa_fails(data):
    sweep = data["sweep"]
    full = sweep["time"].sel(system="reduced") * (1 + 0.1 * sweep["kappa"] ** 0.5)
    wrong = np.stack([full.values, sweep["time"].sel(system="reduced").values], axis=1)
    assert failing({**data, "sweep": sweep.assign(time=(("kappa", "system"), wrong))}) == {EXPONENT}


def test_the_drawing_has_five_panels_with_words(data):
    drawn = fig03.draw(data)
    assert len(drawn.axes) == 5
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
