"""The figures of an earlier run, read from a `claims.json` that anybody may have written.

What it says goes into a page and decides which files that embeds. So every field is checked for its type, length and
range, and the names of files must be those that the figure's own would have. What is not so is left out with a message,
and the file itself is kept under another name.
"""

import itertools
import json
import math
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ._claim import KINDS, Known
from ._own import is_name
from ._registry import FIGURES, PAPERS

NAME = "claims.json"
_LONGEST_DOCUMENT = 2**26
_LONGEST_FILE = 2**26
"""Bytes of `claims.json`, and of a file of a figure; ours have some hundred thousand."""
_LONGEST_TEXT = 10_000
_LONGEST_NAME = 100
_DEEPEST = 4
"""How deep lists and objects may be nested in the value of a setting."""
_LARGEST_WHOLE = 2**53
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_SHOWN = 3
"""How many reasons a message lists."""


class _Unsuitable(Exception):
    """Why a document, or what it has about one figure, is not taken over."""


def earlier(
    folder: Path, warn: Callable[[str], None], *, rename: bool = True, with_data: bool = False
) -> dict[str, dict[str, Any]]:
    """Entries of the figures that `claims.json` in the folder has, by name, each with its `claims`.

    Figures that ended in an error or whose files have been removed are left out, `with_data` also those of whose data
    some have been removed. So is what is not as `reproduce` writes it; then `warn` is called with a message, and if
    `rename` is true `claims.json` gets another name, and so is kept for whoever wrote it.
    """
    path = folder / NAME
    if not os.path.lexists(path):
        return {}
    kept: dict[str, dict[str, Any]] = {}
    reasons = []
    try:
        document = _read(path)
        for entry in document["figures"]:
            try:
                if entry.get("status") != "error":
                    figure = _figure(entry, document["claims"], folder)
                    if not with_data or figure["data"] == entry["data"]:
                        kept[_name(entry)] = figure
            except FileNotFoundError:
                continue
            except _Unsuitable as reason:
                reasons.append(f"{_shown(entry.get('name'))} is left out ({reason})")
    except _Unsuitable as reason:
        reasons.append(str(reason))
    if reasons:
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        kept_as = f". The file is kept as {_put_aside(path).name}" if rename else ""
        warn(f"{path}: {'; '.join(reasons[:_SHOWN])}{more}{kept_as}")
    return kept


def _read(path: Path) -> dict[str, Any]:
    """The document, if it is an object with a list of objects `figures` and another, `claims`."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise _Unsuitable("it is not a file")
        if status.st_size > _LONGEST_DOCUMENT:
            raise _Unsuitable(f"it has more than {_LONGEST_DOCUMENT} bytes")
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise _Unsuitable(f"it cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError):
        raise _Unsuitable("it is not JSON as stepwell writes it") from None
    parts = [document.get(part) for part in ("figures", "claims")] if isinstance(document, dict) else []
    if not parts or not all(isinstance(part, list) and all(isinstance(one, dict) for one in part) for part in parts):
        raise _Unsuitable("it is not a report of stepwell")
    if not all(isinstance(claim.get("id"), str) for claim in document["claims"]):
        raise _Unsuitable("it has claims without identifiers")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _name(entry: dict[str, Any]) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not (name in FIGURES or _is_others(name)):
        raise _Unsuitable("there is no such figure")
    return name


def _is_others(name: str) -> bool:
    """Whether it is called as a user's own figure, which need not be listed in this run."""
    return is_name(name) and len(name) <= _LONGEST_NAME and name.partition("/")[0] not in PAPERS


def _figure(entry: dict[str, Any], claims: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The checked entry of a figure, with its checked claims, and nothing else."""
    name = _name(entry)
    if entry.get("status") != "done" or entry.get("error") is not None:
        raise _Unsuitable("its status is unknown")
    checked = _checked({"changed": {}, "program": "", "source": "", **entry}, _FIGURE)
    mine = [claim for claim in claims if claim["id"].startswith(f"{name}/")]
    for claim in mine:
        if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", claim["id"].removeprefix(f"{name}/")) is None:
            raise _Unsuitable(f"a claim has the identifier {_shown(claim['id'])}")
    if len({claim["id"] for claim in mine}) < len(mine):
        raise _Unsuitable("a claim is there twice")
    paper, figure = name.split("/")
    return {
        "name": name,
        "title": checked["title"],
        "caption": checked["caption"],
        "source": checked["source"],
        "status": "done",
        "error": None,
        "quick": checked["quick"],
        "seconds": checked["seconds"],
        "settings": checked["settings"],
        "changed": checked["changed"],
        "program": checked["program"],
        "paper_settings": checked["paper_settings"],
        **_files(entry, name.replace("/", "-"), folder),
        "claims": [
            {"id": claim["id"], "paper": paper, "figure": figure, **_checked({**_ABSENT, **claim}, _CLAIM)}
            for claim in mine
        ],
    }


def _files(entry: dict[str, Any], stem: str, folder: Path) -> dict[str, Any]:
    """The names of the figure's files, which must be there, and those of its data that are."""
    files, data = entry.get("files"), entry.get("data")
    if not isinstance(files, dict) or not isinstance(data, list):
        raise _Unsuitable("its files are not listed")
    for ending, path in files.items():
        if re.fullmatch("[a-z0-9]{1,8}", ending) is None or path != f"figures/{stem}.{ending}":
            raise _Unsuitable(f"{_shown(path)} is not a file of it")
        if not _is_there(folder, path):
            raise FileNotFoundError(path)
        if not _inside(folder, path) or (folder / path).stat().st_size > _LONGEST_FILE:
            raise _Unsuitable(f"{path} is not a file of this folder, or too large")
    own_data = re.compile(rf"data/{re.escape(stem)}-[\w .,=+-]{{1,100}}\.nc")
    for path in data:
        if not isinstance(path, str) or own_data.fullmatch(path) is None:
            raise _Unsuitable(f"{_shown(path)} is not a data file of it")
        if _is_there(folder, path) and not _inside(folder, path):
            raise _Unsuitable(f"{path} is not a file of this folder")
    return {"files": files, "data": [path for path in data if _is_there(folder, path)]}


def _is_there(folder: Path, path: str) -> bool:
    return os.path.lexists(folder / path)


def _inside(folder: Path, path: str) -> bool:
    """Whether it is a file of the folder, and not reached by a link that leaves it."""
    try:
        real = (folder / path).resolve(strict=True)
        return real.is_file() and real.is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links that lead nowhere, or round in a circle
        return False


def _checked(values: dict[str, Any], fields: dict[str, Callable[[Any], bool]]) -> dict[str, Any]:
    """The values of the fields, in their order, each of which is as its check wants it."""
    for field, is_suitable in fields.items():
        if field not in values or not is_suitable(values[field]):
            raise _Unsuitable(f"{field} is {_shown(values[field])}" if field in values else f"{field} is missing")
    return {field: values[field] for field in fields}


def _is_text(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= _LONGEST_TEXT
        and re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff]", value) is None
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= _LARGEST_WHOLE


def _is_setting(value: Any, deeper: int = _DEEPEST) -> bool:
    if isinstance(value, list):
        return deeper > 0 and all(_is_setting(one, deeper - 1) for one in value)
    if isinstance(value, dict):
        return deeper > 0 and all(_is_text(key) and _is_setting(one, deeper - 1) for key, one in value.items())
    return value is None or _is_flag(value) or _is_number(value) or _is_text(value)


def _is_known(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == set(Known._fields)
        and _is_text(value["reason"])
        and _is_text(value["heading"])
        and (value["quick"] is None or _is_flag(value["quick"]))
    )


_FIGURE: dict[str, Callable[[Any], bool]] = {
    "title": _is_text,
    "caption": _is_text,
    "source": _is_text,
    "quick": _is_flag,
    "seconds": lambda value: _is_number(value) and value >= 0,
    "settings": lambda value: isinstance(value, dict) and _is_setting(value),
    "changed": lambda value: isinstance(value, dict) and _is_setting(value),
    "program": _is_text,
    "paper_settings": lambda value: isinstance(value, dict) and _is_setting(value),
}

_ABSENT = {"only_published": False, "judged": True, "unjudged": ""}
"""What claims of earlier versions do not say."""
_CLAIM: dict[str, Callable[[Any], bool]] = {
    "statement": _is_text,
    "predicted": lambda value: value is None or _is_number(value),
    "measured": lambda value: value is None or _is_number(value),
    "tolerance": lambda value: _is_number(value) and value >= 0,
    "basis": _is_text,
    "relation": lambda value: isinstance(value, str) and value in ("=", "<=", ">="),
    "seeds": lambda value: value is None or (isinstance(value, int) and _is_number(value) and value > 0),
    "pass_rate": lambda value: value is None or (_is_number(value) and 0 <= value <= 1),
    "counted": lambda value: value is None or _is_text(value),
    "kind": lambda value: isinstance(value, str) and value in KINDS,
    "source": _is_text,
    "known": lambda value: value is None or _is_known(value),
    "explored": _is_flag,
    "only_published": _is_flag,
    "unjudged": _is_text,
    "passed": _is_flag,
    "judged": _is_flag,
    "unexpected": _is_flag,
}


def _shown(value: Any) -> str:
    """A value that may be anything, in a message of one line."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # a number of too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _put_aside(path: Path) -> Path:
    """Rename what is there to a name that is free."""
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.unreadable{'' if number == 1 else f'-{number}'}")
        if not os.path.lexists(aside):
            os.rename(path, aside)
            return aside
    raise AssertionError
