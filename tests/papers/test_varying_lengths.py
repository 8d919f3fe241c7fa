"""Varying lengths: the claims hold on a small sample, and fail for another average over lengths."""

import jax
import numpy as np
import pytest

from stepwell.objectives import Moments
from stepwell.papers.linear_attention import varying_lengths as figure
from stepwell.tasks import ContextLengths

FIGURE = "linear/varying-lengths"


def test_the_mean_length_in_place_of_the_harmonic_mean_fails(data, failing):
    """Lengths 1 to 31 taken as their mean, 16, instead of 1/⟨1/n⟩."""
    sample = Moments.of_task(figure.task_of(4), 10, features="cubic", progress=False, key=jax.random.key(0))
    wrong = figure.predict(sample, figure.QUICK, lengths=ContextLengths(16))
    assert failing({**data, "theory": wrong}) >= {"map", "levels", "varied-at-length"}


def test_the_fixed_length_in_place_of_the_varied_fails(data, failing):
    assert failing({**data, "varied": data["fixed"]}) == {"map"}
    tests = data["tests"].rename(varied="fixed", fixed="varied")
    assert failing({**data, "tests": tests}) >= {"varied-at-length", "fixed-at-length", "difference"}


def test_a_sample_of_one_length_fails(data, failing):
    assert "excess" in failing({**data, "sampled": data["fixed"]})


def test_fewer_drops_fail(data, failing):
    cut = data["separate"].isel(time=slice(0, data["separate"].sizes["time"] // 2))
    assert failing({**data, "separate": cut}) == {"drops"}


def test_a_mixture_acts_as_its_harmonic_mean(data):
    nu = float(data["theory"]["mean_inverse_length"])
    assert nu == pytest.approx(np.mean(1 / np.arange(1, 32)))


def test_the_drawing_has_two_panels(data):
    assert len(figure.draw(data).axes) == 2
