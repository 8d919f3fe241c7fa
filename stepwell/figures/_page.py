"""The pages of a report, for a browser without a network: `index.html`, with all figures in it, and `coverage.html`."""

import base64
import functools
import io
import json
import math
from pathlib import Path
from typing import Any

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.text import scientific

from ._claim import KINDS
from ._coverage import coverage
from ._registry import PAPERS

_RELATIONS = {"=": "", "<=": "at most ", ">=": "at least "}
_HEADLINES = {"paper": "papers", "theory": "theory", "check": "checks"}
_THUMBNAIL = (360, 300)  # pixels of a figure in the contents, at the most


def page(document: dict[str, Any], folder: Path) -> str:
    """The report of a `claims.json`, with the figures of `folder` embedded."""
    figures = [_figure(entry, document["claims"], folder) for entry in document["figures"]]
    claims = [claim for entry in figures for claim in entry["claims"]]
    failures = [claim for claim in claims if claim["judged"] and (claim["unexpected"] or not claim["passed"])]
    papers = PAPERS | {
        paper: "Figures of your own" if paper == "own" else f"Figures of {paper}"
        for paper in (entry["name"].partition("/")[0] for entry in figures)
        if paper not in PAPERS
    }
    return _rendered(
        "page.html",
        papers=[
            {"title": title, "figures": [entry for entry in figures if entry["name"].startswith(f"{paper}/")]}
            for paper, title in papers.items()
        ],
        figures=figures,
        tallies=tallies(claims),
        failures=sorted(failures, key=lambda claim: not claim["unexpected"]),
        coverage=coverage(document),
        errors=sum(entry["status"] == "error" for entry in figures),
        against=document.get("against"),
        made=document["made"],
        seconds=document["seconds"],
        versions=document["versions"],
    )


def coverage_page(document: dict[str, Any]) -> str:
    """The statements of the papers, and what the claims of a `claims.json` say of them."""
    return _rendered("coverage.html", papers=coverage(document))


def _rendered(template: str, **values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(number=number, expected=_expected)
    return environment.get_template(template).render(**values)


def _expected(claim: dict[str, Any]) -> str:
    return expected(claim["relation"], claim["predicted"], claim["tolerance"])


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


def _figure(entry: dict[str, Any], claims: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    # As images of their own: in one page the names of the parts of several drawings would clash.
    shown = {
        ending: _address(kind, (folder / entry["files"][ending]).read_bytes())
        for ending, kind in (("svg", "svg+xml"), ("gif", "gif"))
        if ending in entry["files"]
    }
    small = folder / entry["files"].get("png", "")
    mine = [
        {**claim, "passed": claim["passed"] and claim["judged"], "anchor": claim["id"].replace("/", "-")}
        for claim in claims
        if claim["id"].startswith(f"{entry['name']}/")
    ]
    ours, theirs = entry["settings"], entry["paper_settings"]
    held, judged, unexpected = (sum(claim[part] for claim in mine) for part in ("passed", "judged", "unexpected"))
    return {
        **entry,
        "image": shown.get("svg", ""),
        "animation": shown.get("gif", ""),
        "thumbnail": _thumbnail(small, small.stat().st_mtime_ns) if "png" in entry["files"] else "",
        "anchor": entry["name"].replace("/", "-"),
        "claims": mine,
        "held": held,
        "judged": judged,
        "verdict": "bad" if unexpected else "good" if held == judged else "known",
        "changed_settings": [(key, as_setting(value)) for key, value in entry["changed"].items()],
        "compared_settings": [
            (key, *(as_setting(each[key]) if key in each else "" for each in (ours, theirs)))
            for key in {**ours, **theirs}
        ],
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
    return _address("png", written.getvalue())


def _address(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@checked
def number(value: float | None, digits: int = 6) -> str:
    """Return a number as a string for a reader, with a power of ten where it is small or large.

    **Arguments:**

    - `value`: the number; one that is not finite is "not a number", and so is None, which JSON has for it.
    - `digits`: significant digits, at the most; not more than four where there is a power of ten.

    **Returns:** the string, with typographical minus signs.

    **Example:**

    >>> from stepwell.figures import number
    >>> number(0.8810446), number(-2.5e-7), number(0.1360, 2)
    ('0.881045', '−2.5·10⁻⁷', '0.14')
    """
    digits = min(checks.whole("digits", digits), 17)
    if value is None or not math.isfinite(value):
        return "not a number"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return scientific(value, min(digits, 4))
    return f"{value:.{digits}g}".replace("-", "−")


@checked
def expected(relation: str, predicted: float | None, tolerance: float | None) -> str:
    """Return what a claim expects of the measured value, as a string for a reader.

    **Arguments:**

    - `relation`, `predicted`, `tolerance`: those of a claim, as in `claims.json`; None is not a number.

    **Returns:** the predicted value with its tolerance, such as "at most 0.5 ± 0.01"; "exactly 1" without one.

    **Example:**

    >>> from stepwell.figures import expected
    >>> expected("=", 1.0, 0.1), expected("=", 1.0, 0.0)
    ('1 ± 0.1', 'exactly 1')
    """
    words = _RELATIONS[checks.one_of("relation", relation, _RELATIONS)]
    if tolerance == 0:
        return f"{words or 'exactly '}{number(predicted)}"
    if relation == "<=" and predicted == 0:
        return f"at most {number(tolerance, 3)}"
    return f"{words}{number(predicted)} ± {number(tolerance, 3)}"


def as_setting(value: Any) -> str:
    """Return the value of a setting in one line.

    **Arguments:**

    - `value`: a number, a string, or a list of them.

    **Returns:** the line; consecutive integers are shortened.

    **Example:**

    >>> from stepwell.figures import as_setting
    >>> as_setting([0.1, 0.25]), as_setting([20, 21, 22, 23])
    ('0.1, 0.25', '20 to 23')
    """
    if isinstance(value, list | tuple):
        if len(value) > 3 and all(type(one) is int for one in value):
            if list(value) == list(range(value[0], value[-1] + 1)):
                return f"{value[0]} to {value[-1]}"
        return ", ".join(as_setting(each) for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
