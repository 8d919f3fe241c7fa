"""What a paper says, statement by statement, and what the claims of a report say of it: `coverage.html`."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import msgspec

from stepwell._util.arguments import checked

from ._claim import slug
from ._registry import PAPERS

STATEMENTS = "statements.toml"
Verdict = Literal["holds", "partly", "fails", "open", "tested", "unchecked"]
"""Of the judged claims of a statement: all hold, some do or none; none is judged in this report; tests alone check it;
nothing does."""
_WORDS: dict[tuple[Verdict, str], str] = {
    ("holds", ""): "holds",
    ("holds", "paper"): "holds at the paper's settings",
    ("holds", "other"): "holds at other settings",
    ("holds", "here"): "holds at quick or changed settings",
    ("partly", ""): "holds in part",
    ("fails", ""): "does not hold",
    ("open", ""): "not in this report",
    ("tested", ""): "checked by tests alone",
    ("unchecked", ""): "not checked",
}
_PAPER = "paper"  # the settings of a statement whose runs are the paper's


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement of a paper, in our words.

    **Arguments:**

    - `where`: its place in the paper.
    - `says`: the statement, in a sentence.
    - `claims`: the claims that check it, as FIGURE/CLAIM.
    - `tests`: tests of the package that check it where no claim does.
    - `settings`: "paper" where the runs of the claims have the paper's settings, else what those are; empty for
      mathematics.
    - `note`: what is left open, or why nothing checks it.
    """

    where: str
    says: str
    claims: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    settings: str = ""
    note: str = ""


class Statements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The statements of a paper, and the `basis`: which texts of the paper they were taken from."""

    basis: str
    statement: tuple[Statement, ...]


@checked
def statements(paper: str) -> Statements | None:
    """Return the statements of a paper, such as `linear`, from the `statements.toml` beside its figures.

    **Arguments:**

    - `paper`: one of `PAPERS`; None is returned for one without that file.

    **Returns:** the `Statements`.

    **Example:**

    >>> from stepwell.figures import statements
    >>> statements("linear").statement[0].claims
    ('label-blocks/zero-stays',)
    """
    for file in Path(__file__).parents[1].glob(f"papers/*/{STATEMENTS}"):
        if slug(file.parent.name) == paper:
            return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Statements)
    return None


def covered(statement: Statement, claims: dict[str, dict[str, Any]]) -> Verdict:
    """What the claims of a report, by FIGURE/CLAIM, say of a statement."""
    if not statement.claims:
        return "tested" if statement.tests else "unchecked"
    judged = [claims[name]["passed"] for name in statement.claims if name in claims and claims[name]["judged"]]
    if not judged:
        return "open"
    return "holds" if all(judged) else "partly" if any(judged) else "fails"


@checked
def coverage(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a report says of each statement of its papers, as a page shows it.

    **Arguments:**

    - `document`: that of `claims.json`.

    **Returns:** for each paper with statements of which the report has figures, a dictionary: its name (`anchor`) and
    `title`, `basis`, `counts` (how many statements have each verdict, in words) and `rows`, a
    dictionary for each statement.

    **Example:**

    >>> from stepwell.figures import coverage
    >>> coverage({"claims": [], "figures": []})
    []
    """
    shown = {entry["name"].partition("/")[0] for entry in document["figures"]}
    changed = {entry["name"] for entry in document["figures"] if entry["quick"] or entry["changed"]}
    return [
        _of_paper(paper, title, stated, document["claims"], changed)
        for paper, title in PAPERS.items()
        if paper in shown and (stated := statements(paper)) is not None
    ]


def _of_paper(
    paper: str, title: str, stated: Statements, claims: list[dict[str, Any]], changed: set[str]
) -> dict[str, Any]:
    mine = {one["id"].removeprefix(f"{paper}/"): one for one in claims if one["id"].startswith(f"{paper}/")}
    others = {name for name in mine if f"{paper}/{name}".rpartition("/")[0] in changed}
    rows = [
        {"anchor": f"{paper}-{place}", **_row(paper, statement, mine, others)}
        for place, statement in enumerate(stated.statement, start=1)
    ]
    counts = Counter(row["words"] for row in rows)
    order = sorted(counts, key=list(_WORDS.values()).index)
    return {
        "title": title,
        "anchor": paper,
        "basis": stated.basis,
        "counts": [(counts[w], w) for w in order],
        "rows": rows,
    }


def _row(paper: str, statement: Statement, claims: dict[str, dict[str, Any]], changed: set[str]) -> dict[str, Any]:
    """A statement as a page shows it; `changed` are the claims whose figures had quick or changed settings."""
    verdict, here = covered(statement, claims), not changed.isdisjoint(statement.claims)
    at = "" if not statement.settings else "here" if here else _PAPER if statement.settings == _PAPER else "other"
    return {
        **msgspec.structs.asdict(statement),
        "settings": "the paper's" if statement.settings == _PAPER else statement.settings,
        "checks": [{"name": name, "id": f"{paper}/{name}", "claim": claims.get(name)} for name in statement.claims],
        "verdict": verdict,
        "words": _WORDS[verdict, at if verdict == "holds" else ""],
    }
