"""One figure from beginning to end: simulate, claim, draw, and write its files."""

import contextlib
import gc
import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stepwell._errors import InvalidInput
from stepwell._files import write_whole
from stepwell.papers import Claim, WithExtras, figure

FORMATS = ("svg", "pdf", "png")
_LONGEST = 1000
"""Characters of the message of an error, at the most."""


class CannotWrite(Exception):
    """A file of the output folder cannot be written; the message says which and why."""


class Result(NamedTuple):
    """What came of a figure: its entry in `claims.json`, and its claims."""

    entry: dict[str, Any]
    claims: list[Claim]


def make(name: str, quick: bool, folder: Path, begin: Callable[[str, str], None]) -> Result:
    """Run a figure; `begin(name, title)` is called first. An error in it becomes part of the result.

    `CannotWrite` is raised if its files cannot be written: those of no other figure could be.
    """
    try:
        module = figure(name)
        title = module.TITLE
    except Exception as error:
        return failure(name, quick, _described(error))
    begin(name, title)
    try:
        return _run(module, name, quick, folder)
    except CannotWrite:
        raise
    except Exception as error:
        return failure(name, quick, _described(error))


def _described(error: Exception) -> str:
    """An error and its place in one line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).encode(errors="replace").decode().split()) or "no message"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} …"
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"


def freeze_imports() -> None:
    """Leave what has been imported out of Python's search for garbage, once.

    It stays anyway, and searching it again and again takes up to a fifth of the time of a quick figure. This is for a
    process that makes figures and then ends.

    **Example:**

    >>> import gc
    >>> from stepwell.report import freeze_imports
    >>> freeze_imports()
    >>> gc.get_freeze_count() > 0
    True
    >>> gc.unfreeze()
    """
    if gc.get_freeze_count() == 0:
        gc.freeze()


def failure(name: str, quick: bool, error: str) -> Result:
    """The result of a figure that could not be made."""
    entry = {
        "name": name,
        "title": "This figure could not be made",
        "caption": "",
        "status": "error",
        "error": error,
        "quick": quick,
        "seconds": None,
        "settings": {},
        "paper_settings": {},
        "files": {},
        "data": [],
    }
    return Result(entry, [])


def _run(module: Any, name: str, quick: bool, folder: Path) -> Result:
    from stepwell.papers.style import save_figure
    from stepwell.trajectory import save

    begun = time.monotonic()
    data = module.simulate(quick)
    claims = _of(name, module.claims(data))
    drawn = module.draw(data)
    stem = name.replace("/", "-")
    entry = {
        "name": name,
        "title": module.TITLE,
        "caption": module.CAPTION,
        "status": "done",
        "error": None,
        "quick": quick,
        "seconds": None,
        "settings": module.settings(quick),
        "paper_settings": module.PAPER_SETTINGS,
        "files": {ending: f"figures/{stem}.{ending}" for ending in FORMATS},
        "data": [f"data/{stem}-{key}.nc" for key in data],
    }
    json.dumps([entry, [claim.as_json() for claim in claims]], allow_nan=False)  # or no figure could be reported
    with _writing(folder):
        for path in entry["files"].values():
            save_figure(drawn, folder / path)
        for ending, write in _extras(module, data).items():
            entry["files"][ending] = f"figures/{stem}.{ending}"
            write_whole(folder / entry["files"][ending], write)
        for path, dataset in zip(entry["data"], data.values(), strict=True):
            save(dataset, folder / path)
    return Result({**entry, "seconds": round(time.monotonic() - begun, 2)}, claims)


def _of(name: str, claims: Any) -> list[Claim]:
    """The claims of a figure, if they are called after it: the report finds them by that."""
    if not isinstance(claims, list) or not all(isinstance(claim, Claim) for claim in claims):
        raise InvalidInput(f"claims(data) of {name} must return a list of Claim")
    strays = [claim.id for claim in claims if claim.id.rpartition("/")[0] != name]
    if strays:
        raise InvalidInput(f"the claim {strays[0]} belongs to another figure than {name}; call it {name}/…")
    return claims


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"cannot write to {folder} ({error.strerror or error})") from error


def _extras(module: Any, data: dict[str, Any]) -> dict[str, Callable[[str], None]]:
    """Further files that the figure wants written, by ending."""
    return module.extras(data) if isinstance(module, WithExtras) else {}
