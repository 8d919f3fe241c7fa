"""Varying lengths: the claims hold on a small sample, and fail for another average over lengths."""

import jax
import numpy as np
import pytest

from stepwell.objectives import Moments
from stepwell.papers.linear_attention import varying_lengths as figure
from stepwell.tasks import ContextLengths

MAP, DROPS, LEVELS, AT_LENGTH, FIXED_AT_LENGTH, EXCESS, DIFFERENCE = range(7)


@pytest.fixture(scope="module")
def data():
    return figure.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(figure.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_the_mean_length_in_place_of_the_harmonic_mean_fails(data):
    """Lengths 1 to 31 taken as their mean, 16, instead of 1/⟨1/n⟩."""
    sample = Moments.of_task(figure.task_of(4), 10, features="cubic", progress=False, key=jax.random.key(0))
    wrong = figure.predict(sample, figure.QUICK, lengths=ContextLengths(16))
    assert failing({**data, "theory": wrong}) >= {MAP, LEVELS, AT_LENGTH}


def test_the_fixed_length_in_place_of_the_varied_fails(data):
    assert failing({**data, "varied": data["fixed"]}) == {MAP}
    tests = data["tests"].rename(varied="fixed", fixed="varied")
    assert failing({**data, "tests": tests}) >= {AT_LENGTH, FIXED_AT_LENGTH, DIFFERENCE}


def test_a_sample_of_one_length_fails(data):
    assert EXCESS in failing({**data, "sampled": data["fixed"]})


def test_fewer_drops_fail(data):
    cut = data["separate"].isel(time=slice(0, data["separate"].sizes["time"] // 2))
    assert failing({**data, "separate": cut}) == {DROPS}


def test_a_mixture_acts_as_its_harmonic_mean(data):
    nu = float(data["theory"]["mean_inverse_length"])
    assert nu == pytest.approx(np.mean(1 / np.arange(1, 32)))


def test_the_drawing_has_two_panels(data):
    assert len(figure.draw(data).axes) == 2
