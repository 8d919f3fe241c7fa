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
    ("holds", "ours"): "holds at other settings",
    ("holds", "here"): "holds at quick or changed settings",
    ("partly", ""): "holds in part",
    ("fails", ""): "does not hold",
    ("open", ""): "not in this report",
    ("tested", ""): "checked by tests alone",
    ("unchecked", ""): "not checked",
}
_SETTINGS = {"paper": "the paper's", "ours": "ours", "mathematics": "none: mathematics", None: "–"}


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement of a paper, in our words.

    **Arguments:**

    - `where`: its place in the paper.
    - `says`: the statement, in a sentence.
    - `claims`: the claims that check it, as FIGURE/CLAIM.
    - `tests`: tests of the package that check it where no claim does.
    - `settings`: those of the runs that decide it: "paper" (the paper's, but for the seeds) or "ours"; "mathematics"
      where the statement is not about training; None where no claim checks it.
    - `how`: what else there is to say of settings: what is ours, and claims at others.
    - `note`: what is left open, or why nothing checks it.
    """

    where: str
    says: str
    claims: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    settings: Literal["paper", "ours", "mathematics"] | None = None
    how: str = ""
    note: str = ""


class Statements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The statements of a paper.

    **Arguments:**

    - `basis`: which texts of the paper they were taken from.
    - `statement`: each `Statement`.
    - `title`: the paper, where it is none of `PAPERS`.
    - `other`: statements of other papers that the figures of this one check, in lists of their own.
    """

    basis: str
    statement: tuple[Statement, ...]
    title: str = ""
    other: tuple["Statements", ...] = ()


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

    **Returns:** for each paper with statements of which the report has figures, and after it for each other paper that
    its figures check, a dictionary: the `paper` whose figures they are, an `anchor`, which is the same but for another
    paper, `title`, `basis`, `counts` (how many statements have each verdict, in words) and `rows`, a dictionary for
    each statement.

    **Example:**

    >>> from stepwell.figures import coverage
    >>> coverage({"claims": [], "figures": []})
    []
    """
    shown = {entry["name"].partition("/")[0] for entry in document["figures"]}
    changed = {entry["name"] for entry in document["figures"] if entry["quick"] or entry["changed"]}
    return [
        _of_paper(paper, f"{paper}-other-{place}" if place else paper, listed, document["claims"], changed)
        for paper in PAPERS
        if paper in shown and (stated := statements(paper)) is not None
        for place, listed in enumerate((stated, *stated.other))
    ]


def _of_paper(
    paper: str, anchor: str, stated: Statements, claims: list[dict[str, Any]], changed: set[str]
) -> dict[str, Any]:
    mine = {one["id"].removeprefix(f"{paper}/"): one for one in claims if one["id"].startswith(f"{paper}/")}
    others = {name for name in mine if f"{paper}/{name}".rpartition("/")[0] in changed}
    rows = [
        {"anchor": f"{anchor}-{place}", **_row(paper, statement, mine, others)}
        for place, statement in enumerate(stated.statement, start=1)
    ]
    counts = Counter(row["words"] for row in rows)
    order = sorted(counts, key=list(_WORDS.values()).index)
    return {
        "title": stated.title or PAPERS[paper],
        "paper": paper,
        "anchor": anchor,
        "basis": stated.basis,
        "counts": [(counts[w], w) for w in order],
        "rows": rows,
    }


def _row(paper: str, statement: Statement, claims: dict[str, dict[str, Any]], changed: set[str]) -> dict[str, Any]:
    """A statement as a page shows it; `changed` are the claims whose figures had quick or changed settings."""
    verdict, here = covered(statement, claims), not changed.isdisjoint(statement.claims)
    at = "" if statement.settings in (None, "mathematics") else "here" if here else statement.settings
    return {
        **msgspec.structs.asdict(statement),
        "settings": _SETTINGS[statement.settings],
        "checks": [{"name": name, "id": f"{paper}/{name}", "claim": claims.get(name)} for name in statement.claims],
        "verdict": verdict,
        "words": _WORDS[verdict, at if verdict == "holds" else ""],
    }
