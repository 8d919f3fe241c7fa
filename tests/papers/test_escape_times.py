"""The escape-time scalings hold, and fail when the physics is broken."""

import pytest

from stepwell.papers.linear_attention import escape_times

MERGED, EXPONENT, PREFACTOR, COURSE = range(4)


@pytest.fixture(scope="module")
def data():
    return escape_times.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(escape_times.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_another_context_in_the_prediction_fails(data):
    """The law does not know N; the whole course does."""
    wrong = escape_times.separate_times(escape_times.QUICK, context=15)
    assert failing({**data, "separate": wrong}) == {COURSE}


def test_another_norm_in_the_rate_fails(data):
    """‖Λ²‖ as the largest eigenvalue instead of Frobenius's."""
    norms = [max(spectrum) ** 2 for spectrum in escape_times.SPECTRA]
    wrong = data["merged"].assign(rate=("spectrum", norms))
    assert failing({**data, "merged": wrong}) == {MERGED}


def test_another_exponent_fails(data):
    separate = data["separate"]
    assert failing({**data, "separate": separate.assign(time=separate["time"] * separate["value"] ** 0.02)}) == {
        EXPONENT,
        PREFACTOR,
        COURSE,
    }


def test_a_time_without_the_half_fails(data):
    separate = data["separate"]
    assert failing({**data, "separate": separate.assign(time=separate["time"] / 2)}) == {PREFACTOR, COURSE}


def test_the_drawing_has_two_panels_with_words(data):
    drawn = escape_times.draw(data)
    assert len(drawn.axes) == 2
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
