"""The escape-time scalings hold, and fail when the physics is broken."""

from dataclasses import replace

import pytest

from stepwell.papers.linear import escape_times

FIGURE = "linear/escape-times"
QUICK = escape_times.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        (
            {"seeds": "1", "scales": "1e-5", "values": "0.1"},
            {"merged-slope", "separate-exponent", "separate-prefactor"},
        ),
        ({"seeds": "1,2", "scales": "1e-3,1e-5", "values": "1e-2,1e-3", "context": "5", "heads": "2"}, set()),
    ],
)
def test_other_settings(survives, changes, unjudged):
    claims = survives(changes)
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert all(claim.passed for name, claim in claims.items() if name not in unjudged)


def test_another_context_in_the_prediction_fails(data, failing):
    """The law does not know N; the whole course does."""
    half = replace(QUICK, context=15).task(escape_times.ALIGNED)
    wrong = escape_times.separate_times(QUICK, theory_task=half)
    assert failing({**data, "separate": wrong}) == {"separate-course"}


def test_another_norm_in_the_rate_fails(data, failing):
    """‖Λ²‖ as the largest eigenvalue instead of Frobenius's."""
    norms = [max(spectrum) ** 2 for spectrum in escape_times.SPECTRA]
    wrong = data["merged"].assign(rate=("spectrum", norms))
    assert failing({**data, "merged": wrong}) == {"merged-slope"}


def test_a_prediction_from_other_weights_fails(data, failing):
    merged = data["merged"]
    assert failing({**data, "merged": merged.assign(predicted=merged["predicted"] + 0.1)}) == {"merged-time"}


def test_another_exponent_fails(data, failing):
    separate = data["separate"]
    assert failing({**data, "separate": separate.assign(time=separate["time"] * separate["value"] ** 0.02)}) == {
        "separate-exponent",
        "separate-prefactor",
        "separate-course",
    }


def test_a_time_without_the_half_fails(data, failing):
    separate = data["separate"]
    assert failing({**data, "separate": separate.assign(time=separate["time"] / 2)}) == {
        "separate-prefactor",
        "separate-course",
    }


def test_the_drawing_has_four_panels_with_words(data):
    drawn = escape_times.draw(data, QUICK)
    assert len(drawn.axes) == 4
    assert all(axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
