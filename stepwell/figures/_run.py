"""One figure from beginning to end: simulate, claim, draw, and write its files."""

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepwell._util.errors import InvalidInput
from stepwell._util.files import write_whole
from stepwell._util.progress import listening
from stepwell._util.text import shown

from ._claim import Claim
from ._figure import Figure
from ._registry import FIGURES, figure, program
from ._report import Entry

_EVERY = 0.5  # seconds between reports of progress
_LONGEST = 1000  # characters of the message of an error, at the most


class CannotWrite(Exception):
    """A file of the output folder cannot be written; the message says which and why."""


class Progress(NamedTuple):
    """How far a figure is: what it does, which fraction of that is done, and the seconds since that began."""

    name: str
    what: str
    part: float
    seconds: float

    @property
    def left(self) -> float | None:
        """Seconds until it is done, if it goes on as it did; None where that cannot be said yet."""
        return None if not 0.01 <= self.part <= 1 else self.seconds * (1 - self.part) / self.part


class Request(NamedTuple):
    """What is asked of all figures: quick or not, settings that are changed, and the folder of the report."""

    quick: bool
    changes: dict[str, Any]
    folder: Path


class Result(NamedTuple):
    """What came of a figure: its entry in `claims.json`, and its claims."""

    entry: dict[str, Any]
    claims: list[Claim]


def run(name: str, asked: Request, begin: Callable[[str, str], None], progress: Callable[[Progress], None]) -> Result:
    """Run a figure; an error becomes part of the result, but for `CannotWrite`: no other figure could be written."""
    try:
        chosen = figure(name).with_changes(asked.changes)
    except Exception as error:
        return failure(name, asked.quick, _error_text(error, FIGURES.get(name, "")))
    begin(name, chosen.title)
    try:
        with listening(_reporter(name, progress)):
            return _run(chosen, asked)
    except CannotWrite:
        raise
    except Exception as error:
        file = getattr(getattr(chosen.simulate, "__code__", None), "co_filename", "")
        return failure(name, asked.quick, _error_text(error, file))


def failure(name: str, quick: bool, error: str) -> Result:
    entry = Entry(name=name, title="This figure ended in an error", status="error", error=error, quick=quick)
    return Result(msgspec.structs.asdict(entry), [])


def as_plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON has them, or an error."""
    return json.loads(json.dumps(values, allow_nan=False))


def _run(figure: Figure[Any], asked: Request) -> Result:
    import matplotlib.figure

    from stepwell.analysis.style import save_figure
    from stepwell.trajectory import save

    settings, folder, stem = figure.at(asked.quick), asked.folder, figure.name.replace("/", "-")
    begun, sources = time.monotonic(), program(figure.name)  # before its file may change
    data = figure.simulated(settings)
    claims = figure.judged(data, settings)
    drawn = figure.draw(data, settings)
    if not isinstance(drawn, matplotlib.figure.Figure):
        raise InvalidInput(f"draw of {figure.name} must return the matplotlib figure, not {shown(drawn)}")
    as_plain({claim.id: claim.as_json() for claim in claims})  # or no figure could be reported
    entry = Entry(
        name=figure.name,
        title=figure.title,
        caption=figure.caption,
        source=figure.source,
        picture=figure.picture,
        quick=asked.quick,
        settings=figure.described(settings),
        changed=dict(figure.changes),
        program=sources,
        paper_settings=dict(figure.paper_settings),
        explored=figure.seeds.explored,
        fixed=figure.seeds.fixed,
        judged_on=figure.judged_on(settings),
        files={ending: f"figures/{stem}.{ending}" for ending in ("svg", "pdf", "png")},
        data=[f"data/{stem}-{key}.nc" for key in data],
    )
    plain = as_plain(msgspec.structs.asdict(entry))
    try:
        for path in entry.files.values():
            save_figure(drawn, folder / path)
        for ending, write in figure.extras(data, settings).items():
            plain["files"][ending] = f"figures/{stem}.{ending}"
            write_whole(folder / plain["files"][ending], write)
        for path, dataset in zip(entry.data, data.values(), strict=True):
            save(dataset, folder / path)
    except OSError as error:
        raise CannotWrite(f"cannot write to {folder} ({error.strerror or error})") from error
    return Result({**plain, "seconds": round(time.monotonic() - begun, 2)}, claims)


def _reporter(name: str, progress: Callable[[Progress], None]) -> Callable[[str, float], None]:
    """What reports what the meters of a figure say, not too often."""
    last = begun = time.monotonic()
    before = "", 0.0

    def report(what: str, part: float) -> None:
        nonlocal last, begun, before
        now = time.monotonic()
        if what != before[0] or part < before[1]:  # another training has begun
            begun = now
        before = what, part
        if now - last >= _EVERY:
            last = now
            progress(Progress(name, what, part, now - begun))

    return report


def _error_text(error: Exception, file: str) -> str:
    """An error and its place in one line: the last line of the figure's own file that led to it, or else, but for a
    refusal of this package, where it was raised."""
    lines = traceback.extract_tb(error.__traceback__)
    elsewhere = None if isinstance(error, InvalidInput) else lines[-1]
    place = next((line for line in reversed(lines) if line.filename == file), elsewhere)
    text = " ".join(str(error).encode(errors="replace").decode().split()) or "no message"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} …"
    where = "" if place is None else f" ({Path(place.filename).name}, line {place.lineno})"
    return f"{type(error).__name__}: {text}{where}"
