"""On what a figure simulates, its claims hold, but for those that are known not to."""

import re
from pathlib import Path

import pytest
from failing_claims import badly_labeled

from stepwell.figures import FIGURES, Claim, Data, figure, statements

HEADINGS = Path(__file__).parents[2] / "docs" / "differences.md"


def anchors() -> set[str]:
    """The headings of docs/differences.md, as in links to them."""
    lines = [line.lstrip("#").strip().lower() for line in HEADINGS.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", line).replace(" ", "-") for line in lines}


def judged(name: str, data: Data) -> list[Claim]:
    """The claims of a figure at its quick settings."""
    return figure(name).judged(data, figure(name).at(quick=True))


@pytest.mark.parametrize("name", FIGURES)
def test_claims_hold_but_for_the_known(simulated, name: str):
    claims = judged(name, simulated(name))
    assert [claim.id for claim in claims if claim.unexpected(quick=True)] == []
    assert {claim.known.heading for claim in claims if claim.known} <= anchors()


@pytest.mark.parametrize("name", FIGURES)
def test_an_identifier_belongs_to_one_claim(simulated, name: str):
    names = [claim.id for claim in judged(name, simulated(name))]
    assert names and len(set(names)) == len(names) and all(each.startswith(f"{name}/") for each in names)


@pytest.mark.parametrize("name", FIGURES)
def test_every_value_says_what_it_belongs_to(simulated, name: str):
    assert badly_labeled(judged(name, simulated(name))) == {}, "measured lacks coordinates, or the claim labels="


@pytest.mark.parametrize("name", FIGURES)
def test_statements_of_the_paper_and_claims_name_each_other(simulated, name: str):
    paper, _, short = name.partition("/")
    listed = statements(paper)
    assert listed is not None
    named, of_others = (
        {claim for each in lists for one in each.statement for claim in one.claims if claim.startswith(f"{short}/")}
        for lists in ([listed], listed.other)
    )
    claims = {claim.id.removeprefix(f"{paper}/"): claim for claim in judged(name, simulated(name))}
    assert named | of_others <= set(claims)
    assert {key for key, claim in claims.items() if claim.kind == "paper"} <= named
    assert {key for key, claim in claims.items() if claim.kind == "other"} <= of_others


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_which_seeds_judge_it(name: str):
    chosen = figure(name)
    for settings in (chosen.settings, chosen.at(quick=True)):
        assert "not recorded" not in chosen.judged_on(settings).values()
