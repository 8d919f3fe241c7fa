"""The entries of `claims.json`: what is written, what is read of an earlier report, and what moved between two.

A report may have been written by anybody, and what it says goes into a page and decides which files that embeds. So
the types of all fields are checked, and the names of files must be those that the figure's own would have. What is not
so is left out with a message, and the file itself is kept under another name.
"""

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Container
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from stepwell._util.errors import InvalidInput

from ._claim import Kind, Relation
from ._page import as_setting, number
from ._registry import FIGURES, NAME, PAPERS, program

CLAIMS = "claims.json"
_LONGEST = 10_000
"""Characters of a string in a report, at the most."""
_DEEPEST = 6
"""How deep lists and objects may be nested in it."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff]")
_REASONS = 3
"""How many reasons a message lists."""


class Entry(msgspec.Struct, kw_only=True):
    """A figure in `claims.json`."""

    name: Annotated[str, msgspec.Meta(max_length=100)]
    title: str
    caption: str = ""
    source: str = ""
    status: Literal["done", "error"] = "done"
    error: str | None = None
    quick: bool
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    settings: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    program: str = ""
    paper_settings: dict[str, Any] = {}
    files: dict[str, str] = {}
    data: list[str] = []


class _Known(msgspec.Struct):
    reason: str
    heading: str
    quick: bool | None


class _Claim(msgspec.Struct, kw_only=True):
    """A claim in `claims.json`."""

    id: str
    paper: str
    figure: str
    statement: str
    predicted: float | None
    measured: float | None
    tolerance: Annotated[float, msgspec.Meta(ge=0)]
    basis: str
    relation: Relation
    count: Annotated[int, msgspec.Meta(gt=0)] | None = None
    pass_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] | None
    counted: str | None
    kind: Kind
    source: str
    known: _Known | None
    explored: bool
    only_published: bool = False
    unjudged: str = ""
    passed: bool
    judged: bool = True
    unexpected: bool


class _Document(msgspec.Struct):
    figures: list[dict[str, Any]]
    claims: list[dict[str, Any]]


def earlier(
    folder: Path, warn: Callable[[str], None], *, rename: bool = True, with_data: bool = False
) -> dict[str, dict[str, Any]]:
    """Entries of the figures that `claims.json` in the folder has, by name, each with its `claims`.

    Figures that ended in an error or whose files have been removed are left out, `with_data` also those of whose data
    some have been removed. So is what is not as `reproduce` writes it; then `warn` is called with a message, and if
    `rename` is true `claims.json` gets another name, and so is kept for whoever wrote it.
    """
    path, kept = folder / CLAIMS, {}
    if not os.path.lexists(path):
        return kept
    try:
        if not path.is_file():
            raise InvalidInput("it is not a file")
        listed, reasons = figures_in(path.read_bytes())
    except (InvalidInput, OSError) as error:
        listed, reasons = {}, [str(error)]
    for name, entry in listed.items():
        there = [file for file in entry["data"] if os.path.lexists(folder / file)]
        if not all(os.path.lexists(folder / file) for file in entry["files"].values()):
            continue
        if not all(_inside(folder, file) for file in [*entry["files"].values(), *there]):
            reasons.append(f"{name} is left out (it has a file that is not a file of this folder)")
        elif there == entry["data"] or not with_data:
            kept[name] = {**entry, "data": there}
    if reasons:
        more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
        kept_as = f". The file is kept as {_put_aside(path).name}" if rename else ""
        warn(f"{path}: {'; '.join(reasons[:_REASONS])}{more}{kept_as}")
    return kept


def figures_in(text: bytes) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The figures of a `claims.json` that are done, by name, each with its `claims`; and why others are left out."""
    try:
        raw = json.loads(text, parse_constant=int)  # which refuses NaN and Infinity: they are not JSON
        document = msgspec.convert(raw, _Document)
    except msgspec.ValidationError:
        raise InvalidInput("it is not a report of stepwell") from None
    except (ValueError, RecursionError):
        raise InvalidInput("it is not JSON as stepwell writes it") from None
    if not all(isinstance(claim.get("id"), str) for claim in document.claims):
        raise InvalidInput("it has claims without identifiers")
    figures, reasons = {}, []
    for entry in document.figures:
        if entry.get("status") != "error":
            try:
                figures[entry.get("name")] = _checked(entry, document.claims)
            except ValueError as error:
                reasons.append(f"{ascii(entry.get('name'))[:60]} is left out ({error})")
    return figures, reasons


def _checked(raw: dict[str, Any], claims: list[dict[str, Any]]) -> dict[str, Any]:
    """The entry of a figure with its claims; `ValueError` if one is not as `reproduce` writes it."""
    entry = msgspec.convert(raw, Entry)
    name = entry.name
    if name not in FIGURES and (not NAME.fullmatch(name) or name.partition("/")[0] in PAPERS):
        raise ValueError("there is no such figure")
    mine = [claim for claim in claims if claim["id"].startswith(f"{name}/")]
    if not _is_plain([raw, mine]) or entry.error is not None:
        raise ValueError("a value in it is not one that a report has")
    identifiers = [claim["id"].removeprefix(f"{name}/") for claim in mine]
    if not all(re.fullmatch("[a-z0-9][a-z0-9.-]{0,99}", one) for one in identifiers):
        raise ValueError("a claim has an identifier that is none")
    if len(set(identifiers)) < len(mine):
        raise ValueError("a claim is there twice")
    stem = name.replace("/", "-")
    own_data = re.compile(rf"data/{re.escape(stem)}-[\w .,=+-]{{1,100}}\.nc")
    if any(not re.fullmatch("[a-z0-9]{1,8}", e) or path != f"figures/{stem}.{e}" for e, path in entry.files.items()):
        raise ValueError("its files are not those of the figure")
    if not all(own_data.fullmatch(path) for path in entry.data):
        raise ValueError("its data files are not those of the figure")
    return msgspec.to_builtins(entry) | {"claims": msgspec.to_builtins(msgspec.convert(mine, list[_Claim]))}


def _is_plain(value: Any, deeper: int = _DEEPEST) -> bool:
    """Whether all strings, numbers and levels of nesting in a JSON value are such that a page can show them."""
    if isinstance(value, str):
        return len(value) <= _LONGEST and _CONTROL.search(value) is None
    if isinstance(value, list | dict):
        inside = [*value, *value.values()] if isinstance(value, dict) else value
        return deeper > 0 and all(_is_plain(one, deeper - 1) for one in inside)
    return math.isfinite(value) if isinstance(value, float) else abs(value or 0) <= 2**53


def _inside(folder: Path, path: str) -> bool:
    """Whether it is a file of the folder, and not reached by a link that leaves it."""
    real = (folder / path).resolve()
    return real.is_file() and real.is_relative_to(folder.resolve())


def _put_aside(path: Path) -> Path:
    """Rename what is there to a name that is free."""
    names = (path.with_name(f"{path.name}.unreadable{f'-{n}' if n > 1 else ''}") for n in itertools.count(1))
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def is_same(entry: dict[str, Any], quick: bool, changed: dict[str, Any]) -> bool:
    """Whether this program would make the figure again as it is."""
    asked = {"quick": quick, "program": program(entry["name"]), "changed": changed}
    return all(entry[part] == value for part, value in asked.items())


def moved(before: dict[str, Any], after: dict[str, Any], names: Container[str]) -> list[dict[str, str]]:
    """Differences between the named figures of two reports: verdicts first, then claims, numbers and settings.

    Measured values that agree to six digits have not moved.
    """
    old, new = ({one["name"]: one for one in report["figures"] if one["name"] in names} for report in (before, after))
    both = [name for name in new if name in old]
    was, now = (
        {claim["id"]: claim for claim in report["claims"] if claim["id"].rpartition("/")[0] in both}
        for report in (before, after)
    )
    movements: list[tuple[str, ...]] = []
    for name in {**now, **was}:
        first, second = was.get(name), now.get(name)
        if first is None or second is None:
            what = "new" if first is None else "gone"
            movements.append((what, name, *("" if one is None else _verdict(one) for one in (first, second))))
        elif first["passed"] != second["passed"]:
            movements.append((f"{_verdict(second)} now", name, number(first["measured"]), number(second["measured"])))
        elif not _same(first["measured"], second["measured"]):
            movements.append(("measured", name, number(first["measured"]), number(second["measured"])))
    for name in both:
        ours, theirs = old[name]["settings"], new[name]["settings"]
        if ours != theirs:
            movements.append(("settings", name, _without(ours, theirs), _without(theirs, ours)))
    order = ("holds now", "fails now", "gone", "new", "measured", "settings")
    movements.sort(key=lambda one: order.index(one[0]))
    return [dict(zip(("what", "name", "before", "after"), one, strict=True)) for one in movements]


def _verdict(claim: dict[str, Any]) -> str:
    return "holds" if claim["passed"] else "fails"


def _same(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-300)


def _without(settings: dict[str, Any], others: dict[str, Any]) -> str:
    """The settings that the others do not have, or have otherwise."""
    changed = {key: value for key, value in settings.items() if key not in others or others[key] != value}
    return "; ".join(f"{key}: {as_setting(value)}" for key, value in changed.items())
