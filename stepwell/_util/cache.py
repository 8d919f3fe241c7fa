"""Where compiled programs and kernels are kept between runs. This runs at every start, so it imports little.

What lies there is loaded and run, so the folder is its owner's alone: one that belongs to another user, or that others
can write to, is not used.
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


def compiled_programs() -> str | None:
    """The folder of compiled programs, or None where nothing can or should be kept."""
    return cache().folder


def cache() -> Cache:
    """`STEPWELL_CACHE` names another folder than the user's cache folder, or is `off`.

    Programs are compiled for one kind of processor, so each kind has a folder of its own: a home may be shared by many
    machines.
    """
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen.lower() == "off":
        return Cache(None, f"{VARIABLE} is off")
    try:
        named = Path(chosen).expanduser() if chosen else _user_cache()
        parent = named.resolve()  # a link on the way may be set anew, once this is checked
        folder = parent / folder_name()
        for new in (*reversed(parent.parents), parent, folder):
            if not new.exists():
                new.mkdir(exist_ok=True, mode=0o700)
        reason = _exchangeable(parent) or untrusted(folder)
        if reason is not None:
            advice = f"remove it (or close it by chmod go-w, if all in it is yours), or name another with {VARIABLE}"
            return Cache(None, f"the cache folder is not used, since {reason}; {advice}", unsafe=True)
        if sys.platform != "win32":
            folder.chmod(0o700)
        with os.scandir(folder) as listing:
            entries = list(listing)
        if len(entries) > _MOST:
            _remove_oldest(entries)
        str(folder).encode()  # JAX and XLA take names in UTF-8 only
    except UnicodeEncodeError:
        return Cache(None, f"the name of the cache folder is not UTF-8; name another with {VARIABLE}")
    except (OSError, RuntimeError) as error:  # a full disk, no permission, or no home
        return Cache(None, f"no cache folder can be made ({error})")
    return Cache(str(folder)) if os.access(folder, os.W_OK) else Cache(None, f"{folder} cannot be written to")


def untrusted(path: Path) -> str | None:
    """Why a file or folder may hold what another user put there; None if it is this user's alone to write.

    A link is no better than who made it: it could lead anywhere.
    """
    if sys.platform == "win32":
        return None
    for status in (os.lstat(path), os.stat(path)):
        if status.st_uid != os.geteuid():
            return f"{path} belongs to another user (number {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written to by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _exchangeable(parent: Path) -> str | None:
    """Why others could put another folder in the place of one in here, or of this; None if they cannot.

    Further up, other owners and groups are accepted: often each user is a group, and homes lie in folders of others.
    """
    if sys.platform == "win32":
        return None
    if not _is_the_systems(parent) and (reason := untrusted(parent)) is not None:
        return reason
    for above in parent.parents:
        status = os.stat(above)
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"{above} can be written to by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _is_the_systems(folder: Path) -> bool:
    """Whether it is root's and no other user can rename what is in it, as in the system's temporary folder."""
    status = os.stat(folder)
    if status.st_mode & stat.S_ISVTX and status.st_uid in (0, os.geteuid()):
        return True
    return status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def folder_name() -> str:
    """The name of the folder for this kind of processor."""
    return f"xla-{_processor()}"


def _user_cache() -> Path:
    """Our folder where this system keeps caches. Without a home some versions of platformdirs leave `~` as it is."""
    import platformdirs

    folder = platformdirs.user_cache_path("stepwell", appauthor=False, opinion=False)
    if not folder.is_absolute():
        raise RuntimeError(f"there is no home for {folder}")
    return folder


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
