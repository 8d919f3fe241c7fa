"""Quadratic units race: the claims hold for them, and fail for other exponents, times and fractions."""

import numpy as np
import pytest

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import units as figure
from stepwell.papers.simplicity._quadratic_units import dead_fraction, tail

FIGURE = "simplicity/units"
SMALL = {"networks": "20", "dead": "200", "draws": "2000"}


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [({"scales": "1e-2"}, {"exponent"}), ({"units": "2", "rates": "1,-1", "distance": "20"}, set())],
)
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives({**SMALL, **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


@pytest.mark.parametrize(("name", "value"), [("units", 1), ("rates", (1.0, 0.5))])
def test_settings_without_a_race_are_refused(name: str, value):
    with pytest.raises(InvalidInput, match=name):
        figure.Settings(**{name: value})


def test_another_exponent_fails(data, failing):
    race = data["race"]
    assert failing({**data, "race": race.assign(other=race["other"] * race["scale"] ** 0.05)}) == {"exponent"}


def test_times_without_a_turning_point_fail(data, failing):
    alone = data["alone"].copy(deep=True)
    alone["predicted"][:3] *= 1 + 3e-6
    assert failing({**data, "alone": alone}) == {"blow-up"}


@pytest.mark.parametrize(("name", "value"), [("predicted", np.inf), ("time", np.nan)])
def test_times_that_are_missing_fail(data, failing, name: str, value: float):
    alone = data["alone"].copy(deep=True)
    alone[name][::2] = value
    assert failing({**data, "alone": alone}) == {"blow-up"}


def test_if_all_units_grew_the_claim_would_fail(data, failing):
    dead = data["dead"]
    assert failing({**data, "dead": dead.assign(fraction=0 * dead["fraction"])}) == {"dead"}


def test_a_light_tail_fails(data, failing):
    assert failing({**data, "tail": data["tail"].assign(far=0.0)}) == {"tail"}


def test_the_fraction_of_units_that_never_grow():
    """Two inputs: |u|² is exponential with mean 2, so that P(2v² > |u|²) = 1 - E exp(-v²)."""
    assert dead_fraction(2) == pytest.approx((1 - 3**-0.5) / 2, rel=1e-12)


def test_the_tail_of_two_units():
    """H(H - 1) ∫_0^∞ g² φ(g)² dg = 1/4√π for H = 2."""
    assert tail(2) == pytest.approx(1 / (4 * np.sqrt(np.pi)), rel=1e-8)


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 3
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
