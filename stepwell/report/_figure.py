"""One figure from beginning to end: simulate, claim, draw, and write its files."""

import gc
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stepwell._files import write_whole
from stepwell.papers import Claim, WithExtras, figure

FORMATS = ("svg", "pdf", "png")


class Result(NamedTuple):
    """What came of a figure: its entry in `claims.json`, and its claims."""

    entry: dict[str, Any]
    claims: list[Claim]


def make(name: str, quick: bool, folder: Path, begin: Callable[[str, str], None]) -> Result:
    """Run a figure; `begin(name, title)` is called first. An error in it becomes part of the result."""
    try:
        module = figure(name)
        begin(name, module.TITLE)
        return _run(module, name, quick, folder)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split()) or "no message"
        return failure(
            name, quick, f"{type(error).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"
        )


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
        "files": {},
        "data": [],
    }
    return Result(entry, [])


def _run(module: Any, name: str, quick: bool, folder: Path) -> Result:
    from stepwell.papers.style import save_figure
    from stepwell.trajectory import save

    begun = time.monotonic()
    data = module.simulate(quick)
    claims = module.claims(data)
    drawn = module.draw(data)
    stem = name.replace("/", "-")
    files = {ending: f"figures/{stem}.{ending}" for ending in FORMATS}
    for path in files.values():
        save_figure(drawn, folder / path)
    for ending, write in _extras(module, data).items():
        files[ending] = f"figures/{stem}.{ending}"
        write_whole(folder / files[ending], write)
    stored = []
    for key, dataset in data.items():
        stored.append(f"data/{stem}-{key}.nc")
        save(dataset, folder / stored[-1])
    entry = {
        "name": name,
        "title": module.TITLE,
        "caption": module.CAPTION,
        "status": "done",
        "error": None,
        "quick": quick,
        "seconds": round(time.monotonic() - begun, 2),
        "settings": module.settings(quick),
        "files": files,
        "data": stored,
    }
    return Result(entry, claims)


def _extras(module: Any, data: dict[str, Any]) -> dict[str, Callable[[str], None]]:
    """Further files that the figure wants written, by ending."""
    return module.extras(data) if isinstance(module, WithExtras) else {}
