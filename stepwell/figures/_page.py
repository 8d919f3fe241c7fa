"""`index.html`: one file with everything in it, for a browser without a network."""

import base64
import functools
import io
from pathlib import Path
from typing import Any

from ._claim import KINDS
from ._registry import PAPERS
from ._report_text import as_setting, number

_TEMPLATE = "page.html"
_SIGNS = {"=": "=", "<=": "≤", ">=": "≥"}
_HEADLINES = {"paper": "papers", "theory": "theory", "check": "checks"}
_THUMBNAIL = (360, 300)
"""Pixels of a picture in the contents, at the most."""


def page(document: dict[str, Any], folder: Path) -> str:
    """The report of a `claims.json`, with the figures of `folder` embedded."""
    import jinja2

    template = (Path(__file__).parent / _TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(number=number, sign=lambda relation: _SIGNS[relation])
    figures = [_figure(entry, document["claims"], folder) for entry in document["figures"]]
    claims = [claim for entry in figures for claim in entry["claims"]]
    failures = [claim for claim in claims if claim["judged"] and (claim["unexpected"] or not claim["passed"])]
    return environment.from_string(template).render(
        papers=[
            {"title": title, "figures": [entry for entry in figures if entry["name"].startswith(f"{paper}/")]}
            for paper, title in _papers(figures).items()
        ],
        figures=figures,
        tallies=tallies(claims),
        failures=sorted(failures, key=lambda claim: not claim["unexpected"]),
        errors=sum(entry["status"] == "error" for entry in figures),
        against=_against(document.get("against")),
        made=document["made"],
        seconds=document["seconds"],
        versions=document["versions"],
    )


def _papers(figures: list[dict[str, Any]]) -> dict[str, str]:
    """The title of each paper, first ours; those of others are called by their names."""
    others = (entry["name"].partition("/")[0] for entry in figures)
    return PAPERS | {paper: f"Figures of {paper}" for paper in others if paper not in PAPERS}


def _against(compared: dict[str, Any] | None) -> dict[str, Any] | None:
    if compared is None:
        return None
    marks = {"holds now": "good", "fails now": "bad", "gone": "bad"}
    movements = [
        {**one, "mark": marks.get(one["what"], "soft"), "anchor": one["name"].replace("/", "-")}
        for one in compared["movements"]
    ]
    return {**compared, "movements": movements}


def tallies(claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many claims hold, for each kind of claim that there is.

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


def _figure(entry: dict[str, Any], claims: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    # As images of their own: in one page the names of the parts of several drawings would clash.
    shown = {
        ending: f"data:image/{kind};base64,{base64.b64encode((folder / entry['files'][ending]).read_bytes()).decode()}"
        for ending, kind in (("svg", "svg+xml"), ("gif", "gif"))
        if ending in entry["files"]
    }
    mine = [
        {**claim, "passed": claim["passed"] and claim["judged"], "anchor": claim["id"].replace("/", "-")}
        for claim in claims
        if claim["id"].startswith(f"{entry['name']}/")
    ]
    ours, theirs = entry["settings"], entry["paper_settings"]
    held, unexpected = (sum(claim[part] for claim in mine) for part in ("passed", "unexpected"))
    return {
        **entry,
        "image": shown.get("svg", ""),
        "film": shown.get("gif", ""),
        "thumbnail": _thumbnail(folder / entry["files"]["png"]) if "png" in entry["files"] else "",
        "anchor": entry["name"].replace("/", "-"),
        "claims": mine,
        "held": held,
        "judged": sum(claim["judged"] for claim in mine),
        "verdict": "bad" if unexpected else "good" if held == sum(claim["judged"] for claim in mine) else "known",
        "changed_settings": [(key, as_setting(value)) for key, value in entry["changed"].items()],
        "compared_settings": [
            (key, *(as_setting(each[key]) if key in each else "" for each in (ours, theirs)))
            for key in {**ours, **theirs}
        ],
    }


def _thumbnail(path: Path) -> str:
    return _reduced(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _reduced(path: Path, _: int) -> str:
    """A small copy of a picture, as an address; the page is written after each figure, and most have not changed."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            small = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return ""  # it is not a picture: the page does without
    small.thumbnail(_THUMBNAIL)
    written = io.BytesIO()
    small.save(written, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
