"""Statements of papers: what the claims of a report say of them."""

import re
from pathlib import Path
from typing import Any

import pytest

from stepwell.figures import PAPERS, Statement, as_setting, coverage, figure, reproduce, statements
from stepwell.figures._coverage import _row, covered

ROOT = Path(__file__).parents[2]


def claim(passed: bool, judged: bool = True) -> dict:
    return {"passed": passed, "judged": judged}


@pytest.mark.parametrize(
    "first, second, verdict",
    [
        (claim(True), claim(True), "holds"),
        (claim(True), claim(False), "partly"),
        (claim(False), claim(False), "fails"),
        (claim(True), claim(False, judged=False), "holds"),
        (claim(False, judged=False), None, "open"),
        (None, None, "open"),
    ],
)
def test_a_statement_holds_if_all_of_its_judged_claims_do(first: dict | None, second: dict | None, verdict: str):
    statement = Statement(where="Fig 1", says="It falls.", claims=("fig1/one", "fig1/two"))
    made = {"fig1/one": first, "fig1/two": second}
    assert covered(statement, {name: one for name, one in made.items() if one is not None}) == verdict


def test_a_statement_without_claims_says_so():
    assert covered(Statement(where="", says="", tests=("tests/test_it.py",)), {}) == "tested"
    assert covered(Statement(where="", says="", note="No claim."), {}) == "unchecked"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_statement_says_what_checks_it_or_why_nothing_does(paper: str):
    listed = statements(paper)
    assert listed is not None and not listed.title
    assert all(other.title for other in listed.other)
    assert all(each.basis for each in (listed, *listed.other))
    for one in [one for each in (listed, *listed.other) for one in each.statement]:
        assert one.where and one.says.endswith(".")
        assert one.claims or one.tests or one.note
        assert (one.settings is not None) == bool(one.claims)
        assert one.how or one.settings != "ours"
        assert len(set(one.claims)) == len(one.claims)
        for test in one.tests:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text()


def same(ours: Any, theirs: Any) -> bool:
    """Whether a setting is the paper's, up to remarks in words."""
    here, there = as_setting(ours), as_setting(theirs)
    numbers, wanted = (set(re.findall(r"\d[\d.]*", words.replace(",", ""))) for words in (here, there))
    return there.startswith(here) or (bool(numbers) and numbers == wanted)


def differing(name: str) -> set[str] | None:
    """The settings of a figure that are not the paper's, seeds apart; None where none of the paper's is known."""
    chosen = figure(name)
    ours, theirs = chosen.described(chosen.settings), chosen.paper_settings
    known = {key: value for key, value in theirs.items() if key in ours and "seed" not in key}
    return {key for key, value in known.items() if not same(ours[key], value)} if known else None


@pytest.mark.parametrize("paper", PAPERS)
def test_statements_at_the_papers_settings_are_of_figures_that_have_them(paper: str):
    """Of the figures that decide such a statement at least one has all settings of the paper that are known."""
    listed = statements(paper)
    assert listed is not None
    for one in (one for one in listed.statement if one.settings == "paper"):
        figures = {claim.partition("/")[0] for claim in one.claims}
        assert any(differing(f"{paper}/{short}") == set() for short in figures), one.says
        assert one.how or len(figures) == 1


def test_other_settings_are_told_from_the_papers():
    assert differing("linear/fig3") == set() and differing("linear/landscape") is None
    assert differing("linear/fig4") == {"data", "initial weights", "training"}  # the last two are not known for sure
    assert "separate_sequences" in (differing("linear/fig5") or ())
    assert (differing("softmax/fig1") or set()) >= {"scores divided by", "initial weights", "sequences a step"}


def test_what_another_paper_says_has_a_list_of_its_own(register, tmp_path: Path):
    register("softmax/fig1")
    done = reproduce(["softmax/fig1"], out=tmp_path)
    paper, other = coverage(done.document)
    assert paper["paper"] == other["paper"] == paper["anchor"] == "softmax" and "2402.19442" in paper["title"]
    assert "2503.12734" in other["title"] and other["anchor"] == "softmax-other-1"
    assert {row["anchor"] for row in paper["rows"]}.isdisjoint(row["anchor"] for row in other["rows"])
    assert sum(count for count, _ in other["counts"]) == len(other["rows"]) > 0
    listed = statements("softmax")
    assert listed is not None and len(paper["rows"]) == len(listed.statement)
    assert done.page is not None and 'href="coverage.html#softmax-other-1"' in done.page.read_text()
    assert "Of another paper: In-Context Linear Regression" in (tmp_path / "coverage.html").read_text()


def test_the_report_counts_statements_and_links_their_claims(register, tmp_path: Path):
    register("linear/fig1")
    done = reproduce(["linear/fig1"], out=tmp_path)
    (paper,) = coverage(done.document)
    assert sum(count for count, _ in paper["counts"]) == len(paper["rows"])
    assert done.page is not None and 'href="coverage.html#linear"' in done.page.read_text()
    text = (tmp_path / "coverage.html").read_text()
    assert "could not be consulted" in text and "Not in this report" in text
    assert text.count('data-label="Verdict"') == len(paper["rows"])
    quick = coverage(reproduce(["linear/fig1"], out=tmp_path, quick=True).document)[0]
    assert [row["settings"] for row in quick["rows"]] == [row["settings"] for row in paper["rows"]]


@pytest.mark.parametrize(
    "settings, quick, words",
    [
        ("paper", False, "holds at the paper's settings"),
        ("ours", False, "holds at other settings"),
        ("paper", True, "holds at quick or changed settings"),
        ("mathematics", True, "holds"),
    ],
)
def test_a_statement_holds_at_the_settings_of_its_runs(settings: Any, quick: bool, words: str):
    stated = Statement(where="Fig 1", says="It falls.", claims=("fig1/one",), settings=settings, how="Five heads.")
    row = _row("linear", stated, {"fig1/one": claim(True)}, {"fig1/one"} if quick else set())
    assert row["words"] == words


def test_figures_of_your_own_have_no_statements(register, tmp_path: Path):
    assert statements("own") is None
    register("own/first")
    assert coverage(reproduce(["own/first"], out=tmp_path).document) == []
