"""The escape-time scalings hold, and fail when the physics is broken."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from stepwell.models import MergedAttention
from stepwell.papers.linear import escape_times
from stepwell.papers.linear._runs import weights_of
from stepwell.theory import linear as theory

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
    assert failing({**data, "merged": wrong}) == {"merged-slope", "merged-layer", "merged-corrected"}


def test_the_norm_of_the_other_layer_fails(data, failing):
    """W₁ counts D times as many weights that do not grow."""
    merged = data["merged"]
    swapped = merged.assign(norm=(merged["norm"].dims, merged["norm"].values[::-1]))
    assert failing({**data, "merged": swapped}) == {"merged-corrected", "merged-layer"}


def test_a_time_without_the_logarithm_fails(data, failing):
    merged = data["merged"]
    late = merged.assign(time=merged["time"] * 1.5, predicted=merged["predicted"] * 1.5)
    assert "merged-layer" in failing({**data, "merged": late})


def test_the_constant_on_white_inputs_is_in_closed_form():
    task = QUICK.task(escape_times.SPECTRA[0])
    grown, part = np.linalg.norm(theory.modes(task).ends), 1 - 2**-0.5
    assert escape_times._constant(task) == pytest.approx(np.log(grown * part / (1 - part)) / 2, abs=1e-6)


def test_half_of_the_square_of_a_layer_grows():
    """Means over many Gaussian weights, of the norms that the corrected law has."""
    task = QUICK.task(escape_times.ALIGNED)
    squares = []
    for seed in range(200):
        model = MergedAttention.random(dim=4, heads=8, scale=1.0, key=jax.random.key(seed))
        values, key_queries = weights_of(model)
        grown = theory.merged_initial(task, values, key_queries)[0]
        squares.append([np.sum(values**2), np.sum(key_queries**2), grown**2])
    inner, outer, grown = np.mean(squares, axis=0)
    assert inner / grown == pytest.approx(2, rel=0.1) and outer / grown == pytest.approx(32, rel=0.1)


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
