"""The pages of a report, for a browser without a network.

`index.html` is a summary of two printed pages, `coverage.html` what the papers say; then there is a page for each
figure, and the documents to which all of these link.
"""

import base64
import functools
import io
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from stepwell._util.arguments import checked

from ._claim import KINDS
from ._coverage import coverage
from ._distribution import distribution
from ._documents import documents
from ._registry import PAPERS
from ._words import as_setting, expected, number

_HEADLINES = {"paper": "papers", "other": "other papers", "theory": "theory", "check": "checks"}
_THUMBNAIL = (360, 300)  # pixels of a figure in the contents, at the most


def pages(document: dict[str, Any], folder: Path, figures: Container[str] | None = None) -> Iterator[tuple[str, str]]:
    """The files of the report of a `claims.json`, with their texts. Of `figures` those named, and no documents; None
    stands for all."""
    entries = [_figure(entry, document["claims"], folder) for entry in document["figures"]]
    papers = PAPERS | {
        paper: "Figures of your own" if paper == "own" else f"Figures of {paper}"
        for paper in (entry["paper"] for entry in entries)
        if paper not in PAPERS
    }
    covered = coverage(document)
    stated: dict[str, list[dict[str, Any]]] = {}
    for row in (row for listed in covered for row in listed["rows"]):
        for check in row["checks"]:
            stated.setdefault(check["id"], []).append(row)
    if figures is None:
        for path, written in documents().items():
            yield path, _rendered("document.html", up="../" * path.count("/"), **written._asdict())
    for entry in entries:
        if figures is None or entry["name"] in figures:
            yield entry["page"], _rendered("figure.html", entry=entry, paper=papers[entry["paper"]], stated=stated)
    yield "coverage.html", _rendered("coverage.html", papers=covered)
    claims = [claim for entry in entries for claim in entry["claims"]]
    failures = [claim for claim in claims if claim["judged"] and (claim["unexpected"] or not claim["passed"])]
    shown = [
        {
            "title": title,
            "coverage": [listed for listed in covered if listed["paper"] == paper],
            "figures": mine,
            "tallies": tallies(_claims(mine)),
        }
        for paper, title in papers.items()
        if (mine := [entry for entry in entries if entry["paper"] == paper])
    ]
    yield (
        "index.html",
        _rendered(
            "index.html",
            papers=shown,
            tallies=tallies(claims),
            explored=sum(claim["explored"] for claim in claims),
            claims=len(claims),
            failures=sorted(failures, key=lambda claim: not claim["unexpected"]),
            errors=[entry for entry in entries if entry["status"] == "error"],
            figures=entries,
            against=document.get("against"),
            made=document["made"],
            seconds=document["seconds"],
            versions=document["versions"],
        ),
    )


@functools.cache
def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(number=number, expected=_expected, setting=as_setting)
    environment.filters.update(address=_address, distribution=distribution)
    return environment


def _rendered(template: str, up: str = "", **values: Any) -> str:
    return _environment().get_template(template).render(up=up, **values)


def _expected(claim: dict[str, Any]) -> str:
    return expected(claim["relation"], claim["predicted"], claim["tolerance"])


def _address(name: str) -> str:
    """Where a figure or a claim is in the report: linear/fig3/levels is linear-fig3.html#levels."""
    paper, figure, *claim = name.split("/")
    return "#".join([f"{paper}-{figure}.html", *claim])


@checked
def tallies(claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how many claims hold, for each kind of claim that there is.

    **Arguments:**

    - `claims`: the claims of a report, as in its `claims.json`.

    **Returns:** for each kind a dictionary: its `name` in a headline, how many hold (`held`) of how many (`total`), and
    how many are `unexpected`.

    **Example:**

    >>> from stepwell.figures import tallies
    >>> tallies([{"kind": "paper", "passed": True, "unexpected": False}])
    [{'name': 'papers', 'held': 1, 'total': 1, 'unexpected': 0}]
    """
    counts = []
    for kind in KINDS:
        mine = [claim for claim in claims if claim["kind"] == kind and claim.get("judged", True)]
        if mine:
            held, unexpected = (sum(claim[part] for claim in mine) for part in ("passed", "unexpected"))
            counts.append({"name": _HEADLINES[kind], "held": held, "total": len(mine), "unexpected": unexpected})
    return counts


def _claims(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [claim for entry in entries for claim in entry["claims"]]


def _figure(entry: dict[str, Any], claims: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    small = folder / entry["files"].get("png", "")
    mine = [
        {**claim, "passed": claim["passed"] and claim["judged"]}
        for claim in claims
        if claim["id"].startswith(f"{entry['name']}/")
    ]
    held, judged, unexpected = (sum(claim[part] for claim in mine) for part in ("passed", "judged", "unexpected"))
    return {
        **entry,
        "paper": entry["name"].partition("/")[0],
        "page": _address(entry["name"]),
        "thumbnail": _thumbnail(small, small.stat().st_mtime_ns) if "png" in entry["files"] else "",
        "claims": mine,
        "held": held,
        "judged": judged,
        "verdict": "bad" if unexpected else "good" if held == judged else "known",
    }


@functools.lru_cache(maxsize=256)
def _thumbnail(path: Path, _modified: int) -> str:
    """A small copy of a figure; the page is written after each figure, and most have not changed."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return ""  # it is damaged: the page does without
    small.thumbnail(_THUMBNAIL)
    written = io.BytesIO()
    small.save(written, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
