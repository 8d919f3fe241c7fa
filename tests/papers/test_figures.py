"""On what a figure simulates, its claims hold, but for those that are known not to."""

import re
from pathlib import Path

import pytest

from stepwell.papers import FIGURES, figure

HEADINGS = Path(__file__).parents[2] / "docs" / "differences.md"


def anchors() -> set[str]:
    """The headings of docs/differences.md, as in links to them."""
    lines = [line.lstrip("#").strip().lower() for line in HEADINGS.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", line).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("name", FIGURES)
def test_claims_hold_but_for_the_known(simulated, name: str):
    claims = figure(name).claims(simulated(name))
    assert [claim.id for claim in claims if claim.unexpected(quick=True)] == []
    assert {claim.known.heading for claim in claims if claim.known} <= anchors()


@pytest.mark.parametrize("name", FIGURES)
def test_an_identifier_belongs_to_one_claim(simulated, name: str):
    names = [claim.id for claim in figure(name).claims(simulated(name))]
    assert names and len(set(names)) == len(names) and all(each.startswith(f"{name}/") for each in names)
