"""Figures that are done, in the store: a report in another folder need not make them again.

`figures/PROGRAM-SETTINGS.zip` of the store is a report of one figure: `claims.json`, the pictures and the data. What is
read is checked as any other report is (see `earlier`), and the archive's own checksums tell what was altered.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import is_temporary, sweep, why, writable_folder, write_bytes
from stepwell._util.text import error_line

from ._earlier import NAME, earlier
from ._program import program
from ._registry import FIGURES

_LARGEST = 2**28
"""Bytes of an archive, and of all that is in it; ours have some million."""
_MOST_FILES = 1000
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
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as place:
        copy = Path(place)
        try:
            _extract(path, copy)
        except InvalidInput as error:
            warn(f"{path} is damaged ({error}); the figure is made again")
            return None
        entry = earlier(copy, warn, rename=False, with_data=True).get(name)
        same = {"quick": quick, "program": program(name), "changed": changed}
        if entry is None or any(entry[part] != value for part, value in same.items()):
            warn(f"{path} is not the figure {name} with these settings; the figure is made again")
            return None
        for file in [*entry["files"].values(), *entry["data"]]:
            write_bytes(folder / file, (copy / file).read_bytes())
    return entry


def keep(store: Path, folder: Path, result: dict[str, Any], warn: Callable[[str], None]) -> None:
    """Put a figure that is done, with its files in the folder of a report, into the store.

    It is in the report already, so that a store which cannot be written costs no more than a warning.
    """
    path = _path(store, result["name"], result["quick"], result["changed"])
    entry = {key: value for key, value in result.items() if key != "claims"}
    document = {"claims": result["claims"], "figures": [entry]}
    content = io.BytesIO()
    try:
        with zipfile.ZipFile(content, "w") as archive:
            # Without a time: an archive has none before 1980, where a clock may stand.
            archive.writestr(zipfile.ZipInfo(NAME), json.dumps(document, allow_nan=False))
            for file in [*result["files"].values(), *result["data"]]:
                archive.writestr(zipfile.ZipInfo(file), (folder / file).read_bytes())
        writable_folder(path.parent)
        if path.parent.is_symlink():
            raise InvalidInput(f"{path.parent} is a link, which may lead out of the store")
        if path.is_symlink():
            path.unlink()  # what it leads to is not the store's
        write_bytes(path, content.getvalue())
    except (InvalidInput, OSError) as error:
        reason = why(error) if isinstance(error, OSError) else error
        warn(f"{result['name']} is not in the store {store} ({reason}); the report has it")


def _path(store: Path, name: str, quick: bool, changed: dict[str, Any]) -> Path:
    asked = json.dumps([name, quick, changed], sort_keys=True)
    return _folder(store) / f"{program(name)}-{hashlib.sha256(asked.encode()).hexdigest()[:20]}.zip"


def _folder(store: Path) -> Path:
    return store / "figures"


@checked
def damaged_figures(folder: str | os.PathLike) -> list[tuple[Path, str]]:
    """Which figures of a store are damaged; nothing is changed.

    **Arguments:**

    - `folder`: the folder of the store.

    **Returns:** files and what is wrong with them.

    **Example:**

    >>> from stepwell.figures import damaged_figures
    >>> damaged_figures("stepwell-runs")
    []
    """
    problems = []
    if _folder(Path(folder)).is_symlink():
        problems.append((_folder(Path(folder)), "it is a link, which may lead out of the store, and is not used"))
    for path in _files_in(Path(folder)):
        with tempfile.TemporaryDirectory() as place:
            try:
                _extract(path, Path(place))
            except InvalidInput as error:
                problems.append((path, str(error)))
    return problems


@checked
def remove_old_figures(folder: str | os.PathLike) -> list[Path]:
    """Remove the figures of a store that another program made: a new version, or other libraries.

    **Arguments:**

    - `folder`: the folder of the store.

    **Returns:** the files that were removed.

    **Example:**

    >>> from stepwell.figures import remove_old_figures
    >>> remove_old_figures("stepwell-runs")
    []
    """
    current = {program(name) for name in FIGURES}
    removed = [] if _folder(Path(folder)).is_symlink() else sweep(_folder(Path(folder)))
    for path in _files_in(Path(folder)):
        if path.suffix == ".zip" and path.name.partition("-")[0] not in current:
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _files_in(store: Path) -> list[Path]:
    """The figures of the store, and what else is beside them: no folders, and nothing that is being written."""
    folder = _folder(store)
    if folder.is_symlink():
        return []
    inside = (path for path in folder.glob("*") if not is_temporary(path.name))
    return sorted(path for path in inside if path.is_symlink() or not path.is_dir())


def _extract(path: Path, folder: Path) -> None:
    """Unpack an archive of unknown origin: files with the names of a report's, of bounded size, and nothing else."""
    try:
        _unpack(path, folder)
    except (InvalidInput, MemoryError):
        raise
    except Exception as error:  # what zipfile raises on a damaged archive is of many kinds
        raise InvalidInput(error_line(error)) from None


def _unpack(path: Path, folder: Path) -> None:
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:
        raise InvalidInput("it is not a file, or too large")
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > _MOST_FILES or sum(member.file_size for member in members) > _LARGEST:
            raise InvalidInput("it holds too much")
        for part in ("figures", "data"):
            (folder / part).mkdir()
        for member in members:
            if _MEMBER.fullmatch(member.filename) is None or member.compress_type != zipfile.ZIP_STORED:
                raise InvalidInput("it has files that are not of a report")
            with contextlib.closing(archive.open(member)) as stream:
                content = stream.read(member.file_size + 1)
            if len(content) != member.file_size:
                raise InvalidInput("a file in it has another size than it says")
            (folder / member.filename).write_bytes(content)
