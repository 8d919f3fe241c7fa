"""Figures that are done, in the store: a report in another folder need not compute them again.

`figures/PROGRAM-SETTINGS.zip` of the store is a report of one figure: `claims.json`, the figure and its data. What is
read is checked as any other report is, and the archive's own checksums tell what was altered.
"""

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import is_temporary, sweep, writable_folder, write_bytes
from stepwell._util.text import error_line

from ._registry import FIGURES, program
from ._report import CLAIMS, figures_in, is_same

_MEMBER = re.compile(r"claims\.json|(figures|data)/[\w .,=+-]{1,200}")


def fetch(
    store: Path, folder: Path, name: str, quick: bool, changed: dict[str, Any], warn: Callable[[str], None]
) -> dict[str, Any] | None:
    """Copy the files of a figure from the store into the folder of a report.

    Returns its entry in `claims.json`, with its `claims`; None if the store lacks it, or what it has is damaged, in
    which case `warn` is called.
    """
    path = _path(store, name, quick, changed)
    if not os.path.lexists(path) or path.parent.is_symlink():
        return None
    try:
        contents = _contents(path)
        entry = figures_in(contents[CLAIMS])[0].get(name)
        if entry is None or not is_same(entry, quick, changed):
            raise InvalidInput(f"it is not the figure {name} with these settings")
        files = {file: contents[file] for file in [*entry["files"].values(), *entry["data"]]}
    except (InvalidInput, KeyError) as error:
        warn(f"{path} is damaged ({error}); the figure is computed again")
        return None
    for file, content in files.items():
        write_bytes(folder / file, content)
    return entry


def keep(store: Path, folder: Path, result: dict[str, Any], warn: Callable[[str], None]) -> None:
    """Put a figure that is done, with its files in the folder of a report, into the store.

    It is in the report already, so that a store which cannot be written costs no more than a warning.
    """
    path = _path(store, result["name"], result["quick"], result["changed"])
    entry = {key: value for key, value in result.items() if key != "claims"}
    content = io.BytesIO()
    try:
        with zipfile.ZipFile(content, "w") as archive:
            # Without a time: an archive has none before 1980, where a clock may stand.
            archive.writestr(zipfile.ZipInfo(CLAIMS), json.dumps({"claims": result["claims"], "figures": [entry]}))
            for file in [*result["files"].values(), *result["data"]]:
                archive.writestr(zipfile.ZipInfo(file), (folder / file).read_bytes())
        writable_folder(path.parent)
        if path.parent.is_symlink():
            raise InvalidInput(f"{path.parent} is a link, which may lead out of the store")
        if path.is_symlink():
            path.unlink()  # what it leads to is not the store's
        write_bytes(path, content.getvalue())
    except (InvalidInput, OSError) as error:
        warn(f"{result['name']} is not in the store {store} ({error}); the report has it")


def _path(store: Path, name: str, quick: bool, changed: dict[str, Any]) -> Path:
    asked = json.dumps([name, quick, changed], sort_keys=True)
    return store / "figures" / f"{program(name)}-{hashlib.sha256(asked.encode()).hexdigest()[:20]}.zip"


@checked
def damaged_figures(folder: str | os.PathLike) -> list[tuple[Path, str]]:
    """Return which figures of a store are damaged. Nothing is changed.

    **Arguments:**

    - `folder`: the folder of the store.

    **Returns:** files and what is wrong with them.

    **Example:**

    >>> from stepwell.figures import damaged_figures
    >>> damaged_figures("stepwell-runs")
    []
    """
    problems, figures = [], Path(folder) / "figures"
    if figures.is_symlink():
        problems.append((figures, "it is a link, which may lead out of the store, and is not used"))
    for path in _files_in(figures):
        try:
            _contents(path)
        except InvalidInput as error:
            problems.append((path, str(error)))
    return problems


@checked
def remove_old_figures(folder: str | os.PathLike) -> list[Path]:
    """Remove the figures of a store that another program made: another version, or other libraries.

    **Arguments:**

    - `folder`: the folder of the store.

    **Returns:** the files that were removed.

    **Example:**

    >>> from stepwell.figures import remove_old_figures
    >>> remove_old_figures("stepwell-runs")
    []
    """
    figures = Path(folder) / "figures"
    current = {program(name) for name in FIGURES}
    removed = [] if figures.is_symlink() else sweep(figures)
    for path in _files_in(figures):
        if path.suffix == ".zip" and path.name.partition("-")[0] not in current:
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _files_in(figures: Path) -> list[Path]:
    """The figures of a store, and what else is beside them: no folders, and nothing that is being written."""
    inside = [] if figures.is_symlink() else figures.glob("*")
    return sorted(path for path in inside if not is_temporary(path.name) and (path.is_symlink() or not path.is_dir()))


def _contents(path: Path) -> dict[str, bytes]:
    """The files of an archive of unknown origin, by name: those that a report has, and nothing else."""
    if path.is_symlink() or not path.is_file():
        raise InvalidInput("it is not a file")
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if _MEMBER.fullmatch(member.filename) is None or member.compress_type != zipfile.ZIP_STORED:
                    raise InvalidInput("it has files that are not of a report")
            return {name: archive.read(name) for name in archive.namelist()}
    except (InvalidInput, MemoryError):
        raise
    except Exception as error:  # what zipfile raises on a damaged archive is of many kinds
        raise InvalidInput(error_line(error)) from None
