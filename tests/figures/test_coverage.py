"""Statements of papers: what the claims of a report say of them."""

from pathlib import Path

import pytest

from stepwell.figures import PAPERS, Statement, coverage, reproduce, statements
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
    assert listed is not None and listed.basis
    for one in listed.statement:
        assert one.where and one.says.endswith(".")
        assert one.claims or one.tests or one.note
        assert len(set(one.claims)) == len(one.claims)
        for test in one.tests:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text()


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
        ("fewer seeds", False, "holds at other settings"),
        ("paper", True, "holds at quick or changed settings"),
        ("", True, "holds"),
    ],
)
def test_a_statement_holds_at_the_settings_of_its_runs(settings: str, quick: bool, words: str):
    stated = Statement(where="Fig 1", says="It falls.", claims=("fig1/one",), settings=settings)
    row = _row("linear", stated, {"fig1/one": claim(True)}, {"fig1/one"} if quick else set())
    assert row["words"] == words


def test_figures_of_your_own_have_no_statements(register, tmp_path: Path):
    assert statements("own") is None
    register("own/first")
    assert coverage(reproduce(["own/first"], out=tmp_path).document) == []
