"""Figures that are done, in the store: a report in another folder need not compute them again.

`figures/PROGRAM-SETTINGS.zip` of the store is a report of one figure: `claims.json`, the figure and its data. The
archive's own checksums tell what was altered.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import is_temporary, sweep, why, writable_folder, write_bytes
from stepwell._util.text import error_line

from ._registry import FIGURES, program
from ._report import CLAIMS, figures_in, is_same
from ._run import CannotWrite


def fetch(
    store: Path, folder: Path, name: str, quick: bool, changed: dict[str, Any], warn: Callable[[str], None]
) -> dict[str, Any] | None:
    """Copy the files of a figure from the store into the folder of a report, and return its entry with its `claims`;
    None if the store lacks it, or what it has is damaged, in which case `warn` is called."""
    path = _path(store, program(name), name, quick, changed)
    if not path.exists():
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
    try:
        for file, content in files.items():
            write_bytes(folder / file, content)
    except OSError as error:
        raise CannotWrite(f"cannot write to {folder} ({why(error)})") from error
    return entry


def keep(store: Path, folder: Path, result: dict[str, Any], warn: Callable[[str], None]) -> None:
    """Put a figure of a report into the store; where that cannot be written, `warn` is called."""
    path = _path(store, *(result[part] for part in ("program", "name", "quick", "changed")))
    entry = {key: value for key, value in result.items() if key != "claims"}
    content = io.BytesIO()
    try:
        with zipfile.ZipFile(content, "w") as archive:
            # Without a time: an archive has none before 1980, where a clock may stand.
            archive.writestr(zipfile.ZipInfo(CLAIMS), json.dumps({"claims": result["claims"], "figures": [entry]}))
            for file in [*result["files"].values(), *result["data"]]:
                archive.writestr(zipfile.ZipInfo(file), (folder / file).read_bytes())
        writable_folder(path.parent)
        write_bytes(path, content.getvalue())
    except (InvalidInput, OSError) as error:
        warn(f"{result['name']} is not in the store {store} ({error}); the report has it")


def _path(store: Path, sources: str, name: str, quick: bool, changed: dict[str, Any]) -> Path:
    asked = json.dumps([name, quick, changed], sort_keys=True)
    return store / "figures" / f"{sources}-{hashlib.sha256(asked.encode()).hexdigest()[:20]}.zip"


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
    problems = []
    for path in _files_in(Path(folder) / "figures"):
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
    removed = sweep(figures)
    for path in _files_in(figures):
        if path.suffix == ".zip" and path.name.partition("-")[0] not in current:
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _files_in(figures: Path) -> list[Path]:
    """The figures of a store, and what else is beside them: no folders, and nothing that is being written."""
    return sorted(path for path in figures.glob("*") if not is_temporary(path.name) and not path.is_dir())


def _contents(path: Path) -> dict[str, bytes]:
    """The files of an archive, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception as error:  # what zipfile raises on a damaged archive is of many kinds
        raise InvalidInput(error_line(error)) from None
