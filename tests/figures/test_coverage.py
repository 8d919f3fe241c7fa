"""Statements of papers: what the claims of a report say of them."""

from pathlib import Path

import pytest

from stepwell.figures import PAPERS, Statement, coverage, reproduce, statements
from stepwell.figures._coverage import covered

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
    assert text.count("<tr>") == len(paper["rows"]) + 1 and "not in this report" in text


def test_figures_of_your_own_have_no_statements(register, tmp_path: Path):
    assert statements("own") is None
    register("own/first")
    assert coverage(reproduce(["own/first"], out=tmp_path).document) == []
