"""Varying lengths: the claims hold on a small sample, and fail for another average over lengths."""

import jax
import numpy as np
import pytest

from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.papers.linear import varying_lengths as figure
from stepwell.tasks import ContextLengths
from stepwell.theory import linear as theory

FIGURE = "linear/varying-lengths"
QUICK = figure.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": "3", "longest": "1", "eigenvalues": "1", "samples": "1"},
        {"seeds": "1,2", "longest": "8", "eigenvalues": "0.2,0.5", "merged_heads": "1", "separate_heads": "5"},
    ],
)
def test_other_settings(survives, changes):
    claims = survives({"samples": "2", "sequences": "200", "test_contexts": "100", **changes})
    assert all(claim.judged() for claim in claims.values())
    assert all(claims[name].passed for name in ("map", "drops", "levels", "varied-at-length", "fixed-at-length"))


@pytest.mark.parametrize("length", [16.0, 12.4])
def test_another_mean_in_place_of_the_harmonic_one_fails(data, failing, length):
    """Lengths 1 to 31 taken as their mean, or as their geometric mean, instead of 1/⟨1/n⟩."""
    wrong = figure.predict(QUICK, length=length)
    assert failing({**data, "theory": wrong}) >= {"map", "harmonic-mean", "levels"}


def test_the_fixed_length_in_place_of_the_varied_fails(data, failing):
    assert failing({**data, "varied": data["fixed"]}) == {"map"}
    tests = data["tests"].rename(varied="fixed", fixed="varied")
    assert failing({**data, "tests": tests}) == {"varied-at-length", "fixed-at-length"}


def test_samples_of_one_length_fail(data, failing):
    merged = MergedAttention.random(dim=4, heads=8, scale=1e-3, key=jax.random.key(0))
    wrong = figure.train_on_samples(merged, QUICK, jax.random.key(1), lengths=16)
    assert failing({**data, "samples": wrong}) == {"harmonic-mean"}


def test_separate_attention_trained_at_one_length_fails(data, failing):
    wrong = figure.train_separate(QUICK, lengths=16)
    assert failing({**data, "separate": wrong}) == {"levels"}


def test_fewer_drops_fail(data, failing):
    separate = data["separate"]
    assert failing({**data, "separate": separate.assign(drops=separate["drops"] - 1)}) == {"drops"}


def test_plateaus_are_compared_in_order(data, failing):
    """Each at a level, but not at its own."""
    separate = data["separate"].copy(deep=True)
    separate["middle_loss"] = separate["middle_loss"].roll(plateau=1)
    assert failing({**data, "separate": separate}) == {"levels"}


def test_the_loss_of_a_mixture_is_that_of_its_harmonic_mean():
    """Lengths 6, 10 and 15 act as 9, for any weights; the paper's map and levels are the theory's."""
    mixture, single = QUICK.task(ContextLengths((6, 10, 15))), QUICK.task(9)
    assert figure.harmonic_mean(mixture.context) == pytest.approx(9)
    model = MergedAttention.random(dim=4, heads=3, scale=1.0, key=jax.random.key(0))
    assert float(Population(mixture)(model)) == pytest.approx(float(Population(single)(model)), rel=1e-13)
    np.testing.assert_allclose(figure.map_at(9.0, QUICK.eigenvalues), theory.minimizer(single), atol=1e-12)
    np.testing.assert_allclose(figure.levels_at(9.0, QUICK.eigenvalues), theory.levels(single), atol=1e-12)


def test_the_length_that_fits_a_map_is_its_own():
    assert figure.fitted_length(figure.map_at(11.3, QUICK.eigenvalues), QUICK) == pytest.approx(11.3, rel=1e-4)


def test_the_drawing_has_three_panels(data):
    assert len(figure.draw(data, QUICK).axes) == 3
