"""The entries of `claims.json`: what is written, what is read of an earlier report, and what moved between two."""

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Container
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from stepwell._util.errors import InvalidInput

from ._claim import Claim
from ._registry import FIGURES, NAME, PAPERS, program
from ._words import as_setting, number

CLAIMS = "claims.json"
_CLAIM = {one.name for one in dataclasses.fields(Claim)} | {"judged", "unexpected"}
_VERDICTS = {True: "holds", False: "fails"}
_MOVES = ("holds now", "fails now", "gone", "new", "measured", "settings")  # in the order of a report
_REASONS = 3  # how many reasons a message lists


class Entry(msgspec.Struct, kw_only=True):
    """A figure in `claims.json`."""

    name: str
    title: str
    caption: str = ""
    source: str = ""
    picture: str = ""
    status: Literal["done", "error"] = "done"
    error: str | None = None
    quick: bool
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    settings: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    program: str = ""
    paper_settings: dict[str, Any] = {}
    explored: str = ""
    fixed: str = ""
    judged_on: dict[str, Any] = {}
    files: dict[str, str] = {}
    data: list[str] = []


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
        there = [file for file in entry["data"] if (folder / file).exists()]
        if all((folder / file).exists() for file in entry["files"].values()):
            if there == entry["data"] or not with_data:
                kept[name] = {**entry, "data": there}
    if reasons:
        more = f"; and {len(reasons) - _REASONS} more" if len(reasons) > _REASONS else ""
        kept_as = f". The file is kept as {_put_aside(path).name}" if rename else ""
        warn(f"{path}: {'; '.join(reasons[:_REASONS])}{more}{kept_as}")
    return kept


def figures_in(text: bytes) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The figures of a `claims.json` that are done, by name, each with its `claims`; and why others are left out."""
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (ValueError, RecursionError):
        raise InvalidInput("it is not a report of stepwell") from None
    figures, reasons = {}, []
    for entry in document.figures:
        if entry.get("status") != "error":
            try:
                figures[entry.get("name")] = _checked(entry, document.claims)
            except ValueError as error:
                reasons.append(f"{ascii(entry.get('name'))[:60]} is left out ({error})")
    return figures, reasons


def _checked(raw: dict[str, Any], claims: list[dict[str, Any]]) -> dict[str, Any]:
    """The entry of a figure with its claims; `ValueError` if it is of another version, or of a figure that is gone."""
    entry = msgspec.convert(raw, Entry)
    if entry.name not in FIGURES and (not NAME.fullmatch(entry.name) or entry.name.partition("/")[0] in PAPERS):
        raise ValueError("there is no such figure")
    mine = [claim for claim in claims if str(claim.get("id")).startswith(f"{entry.name}/")]
    stem = re.escape(entry.name.replace("/", "-"))
    own = re.compile(rf"figures/{stem}\.\w+|data/{stem}-[^/\\]+")  # they are read, and taken from a store written
    if not all(map(own.fullmatch, [*entry.files.values(), *entry.data])):
        raise ValueError("its files are not those of the figure")
    if any(set(claim) != _CLAIM for claim in mine):
        raise ValueError("a claim has other fields than those of this version")
    return msgspec.to_builtins(entry) | {"claims": mine}


def _put_aside(path: Path) -> Path:
    """Rename what is there to a name that is free."""
    names = (path.with_name(f"{path.name}.unreadable{f'-{n}' if n > 1 else ''}") for n in itertools.count(1))
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def is_same(entry: dict[str, Any], quick: bool, changed: dict[str, Any]) -> bool:
    """Whether this program would make the figure again as it is."""
    asked = {"quick": quick, "program": program(entry["name"]), "changed": changed}
    return all(entry[part] == value for part, value in asked.items())


def moved(before: dict[str, Any], after: dict[str, Any], names: Container[str]) -> list[dict[str, str]]:
    """Differences between the named figures of two reports, sorted as `_MOVES`; of measured values six digits count."""
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
            verdicts = ("" if one is None else _VERDICTS[one["passed"]] for one in (first, second))
            movements.append(("new" if first is None else "gone", name, *verdicts))
        elif first["passed"] != second["passed"] or not _same(first["measured"], second["measured"]):
            what = "measured" if first["passed"] == second["passed"] else f"{_VERDICTS[second['passed']]} now"
            movements.append((what, name, number(first["measured"]), number(second["measured"])))
    for name in both:
        ours, theirs = old[name]["settings"], new[name]["settings"]
        if ours != theirs:
            movements.append(("settings", name, _without(ours, theirs), _without(theirs, ours)))
    movements.sort(key=lambda one: _MOVES.index(one[0]))
    return [dict(zip(("what", "name", "before", "after"), one, strict=True)) for one in movements]


def _same(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-300)


def _without(settings: dict[str, Any], others: dict[str, Any]) -> str:
    """The settings that the others do not have, or have otherwise."""
    changed = {key: value for key, value in settings.items() if key not in others or others[key] != value}
    return "; ".join(f"{key}: {as_setting(value)}" for key, value in changed.items())
