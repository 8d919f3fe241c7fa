"""`index.html`: one file with everything in it, for a browser without a network."""

import base64
import json
import math
from pathlib import Path
from typing import Any

from stepwell import _check
from stepwell._arguments import checked
from stepwell._text import superscript
from stepwell.papers import PAPERS

_TEMPLATE = "page.html"
_SIGNS = {"=": "=", "<=": "≤", ">=": "≥"}


def page(document: dict[str, Any], folder: Path) -> str:
    """The report of a `claims.json`, with the figures of `folder` embedded."""
    import jinja2

    template = (Path(__file__).parent / _TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(number=number, setting=setting, sign=lambda relation: _SIGNS[relation])
    figures = [_figure(entry, document["claims"], folder) for entry in document["figures"]]
    claims = document["claims"]
    return environment.from_string(template).render(
        papers=[
            {"title": title, "figures": [entry for entry in figures if entry["name"].startswith(f"{paper}/")]}
            for paper, title in PAPERS.items()
        ],
        held=sum(claim["passed"] for claim in claims),
        total=len(claims),
        errors=sum(entry["status"] == "error" for entry in figures),
        seconds=document["seconds"],
        versions=document["versions"],
    )


@checked
def number(value: float | None, digits: int = 6) -> str:
    """A number as text for a reader, with a power of ten where it is small or large.

    **Arguments:**

    - `value`: the number; one that is not finite is "not a number", and so is None, which JSON has for it.
    - `digits`: significant digits, at the most; not more than four where there is a power of ten.

    **Returns:** the text, with typographical minus signs.

    **Example:**

    >>> from stepwell.report import number
    >>> number(0.8810446), number(-2.5e-7), number(0.1360, 2)
    ('0.881045', '−2.5·10⁻⁷', '0.14')
    """
    digits = min(_check.whole("digits", digits), 17)
    if value is None or not math.isfinite(value):
        return "not a number"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e6):
        mantissa, _, power = f"{value:.{min(digits, 4) - 1}e}".partition("e")
        plain = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{'' if plain == '1' else plain + '·'}10{superscript(int(power))}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def setting(value: Any) -> str:
    """A setting's value in one line."""
    if isinstance(value, list | tuple):
        return ", ".join(setting(each) for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _figure(entry: dict[str, Any], claims: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    # As images of their own: in one page the names of the parts of several drawings would clash.
    shown = {
        ending: f"data:image/{kind};base64,{base64.b64encode((folder / entry['files'][ending]).read_bytes()).decode()}"
        for ending, kind in (("svg", "svg+xml"), ("gif", "gif"))
        if ending in entry["files"]
    }
    mine = [
        {**claim, "anchor": claim["id"].replace("/", "-")}
        for claim in claims
        if claim["id"].startswith(f"{entry['name']}/")
    ]
    return {
        **entry,
        "image": shown.get("svg", ""),
        "film": shown.get("gif", ""),
        "anchor": entry["name"].replace("/", "-"),
        "claims": mine,
    }
