"""The folder in which compiled programs and kernels are kept between runs. This runs at every start: it imports little.

What lies there is loaded and run: what another user owns, or others can write to, is not used.
"""

import contextlib
import hashlib
import os
import platform
import stat
import sys
from pathlib import Path
from typing import NamedTuple

VARIABLE = "STEPWELL_CACHE"
_MOST = 20_000
"""Programs kept, some tens of kilobytes each; beyond that the oldest half is removed."""


class Cache(NamedTuple):
    """The folder of compiled programs, or why there is none."""

    folder: str | None
    reason: str = ""
    unsafe: bool = False
    """Whether the folder was refused because others could have put something there."""


def cache() -> Cache:
    """Return the folder for this kind of processor, in the user's cache folder or the one that `STEPWELL_CACHE` names.

    Programs are compiled for one kind of processor, and a home may be shared by many machines.
    """
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen.lower() == "off":
        return Cache(None, f"{VARIABLE} is off")
    try:
        folder = (Path(chosen).expanduser() if chosen else _user_cache()).resolve() / folder_name()
        for new in (*reversed(folder.parents), folder):
            if not new.exists():
                new.mkdir(exist_ok=True, mode=0o700)
        reason = untrusted(folder)
        if reason is not None:
            advice = f"remove it (or close it by chmod go-w, if all in it is yours), or name another with {VARIABLE}"
            return Cache(None, f"the cache folder is not used, since {reason}; {advice}", unsafe=True)
        folder.chmod(0o700)
        with os.scandir(folder) as entries:
            _remove_oldest(list(entries))
        str(folder).encode()  # JAX and XLA take names in UTF-8 only
    except UnicodeEncodeError:
        return Cache(None, f"the name of the cache folder is not UTF-8; name another with {VARIABLE}")
    except (OSError, RuntimeError) as error:  # a full disk, no permission, or no home
        return Cache(None, f"no cache folder can be made ({error})")
    return Cache(str(folder)) if os.access(folder, os.W_OK) else Cache(None, f"{folder} cannot be written to")


def untrusted(path: Path) -> str | None:
    """Return why a file or folder, or a link to it, may be another user's; None if this user alone can write to it."""
    if sys.platform == "win32":
        return None
    for status in (os.lstat(path), os.stat(path)):
        if status.st_uid != os.geteuid():
            return f"{path} belongs to another user (number {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written to by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def folder_name() -> str:
    """Return the name of the folder for this kind of processor: a hash of what it can do."""
    described = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        for beginning in (("flags", "Features"), "model name"):
            described += next((line for line in lines if line.startswith(beginning)), "")
    return f"xla-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def _user_cache() -> Path:
    import platformdirs

    folder = platformdirs.user_cache_path("stepwell", appauthor=False, opinion=False)
    if not folder.is_absolute():  # some versions leave `~` as it is where there is no home
        raise RuntimeError(f"there is no home for {folder}")
    return folder


def _remove_oldest(entries: list[os.DirEntry]) -> None:
    """Remove the oldest half if there are too many. Other processes may read meanwhile: what they miss they compile."""
    if len(entries) > _MOST:
        with contextlib.suppress(OSError):
            for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime)[: len(entries) // 2]:
                os.remove(entry.path)
