"""Where compiled programs are kept between runs. Standard library only: this runs at every start."""

import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

VARIABLE = "STEPWELL_CACHE"
_MOST = 20_000
"""Programs kept, some tens of kilobytes each; beyond that the oldest half is removed."""


def compiled_programs() -> str | None:
    """The folder of compiled programs, or None where nothing can or should be kept.

    `STEPWELL_CACHE` names another folder than the user's cache folder, or is `off`. Programs are compiled for one kind
    of processor, so each kind has a folder of its own: a home may be shared by many machines.
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() == "off":
        return None
    try:
        folder = (Path(chosen).expanduser() if chosen else _user_cache() / "stepwell") / f"xla-{_processor()}"
        folder.mkdir(parents=True, exist_ok=True)
        with os.scandir(folder) as found:
            entries = list(found)
        if len(entries) > _MOST:
            _remove_oldest(entries)
    except (OSError, RuntimeError):  # no room, no right, or no home
        return None
    return str(folder) if os.access(folder, os.W_OK) else None


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _processor() -> str:
    """A short name for what this processor can do."""
    described = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += next((line for line in lines if line.startswith(("flags", "Features"))), "")
        described += next((line for line in lines if line.startswith("model name")), "")
    return hashlib.sha256(described.encode()).hexdigest()[:12]


def _remove_oldest(entries: list[os.DirEntry]) -> None:
    """Other processes may read meanwhile: what they miss they compile."""
    ages = {}
    for entry in entries:
        with contextlib.suppress(OSError):
            ages[entry.path] = entry.stat().st_mtime
    for path in sorted(ages, key=lambda path: ages[path])[: len(ages) // 2]:
        with contextlib.suppress(OSError):
            os.remove(path)
