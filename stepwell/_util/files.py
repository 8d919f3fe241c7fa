"""Files appear whole or not at all: written under a temporary name, flushed to the disk, then renamed.

Data are made into bytes first: HDF5 cannot close a file on a full disk, and crashes when the process ends.
"""

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from .errors import InvalidInput

_unfinished: set[str] = set()

_PART = re.compile(r"\.stepwell-([0-9a-f]{8})-([0-9]+)-[0-9a-f]{8}\.part(?:\..*)?")
"""Temporary names: machine, process, a random number, and the ending of the file."""
_ABANDONED = 600.0
"""Seconds after which a temporary file of a process that is gone is removed."""
_NOT_SUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What file systems answer that cannot flush."""
_NO_LINKS = _NOT_SUPPORTED | {errno.EPERM, errno.EMLINK}
"""What file systems answer that have no hard links."""


def writable_folder(path: str | os.PathLike) -> Path:
    """The folder, made if need be; `InvalidInput` if it cannot be written."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput(f"cannot write to the folder {folder} ({why(error)}); name another one with --out") from None
    return folder


def write_whole(path: str | os.PathLike, write: Callable[[str], None], *, replace: bool = True) -> Path:
    """Call `write` with a temporary name beside `path` (same ending), then rename it to `path`, which is returned.

    This is for programs that write files themselves; `write_bytes` is for all else. A symbolic link is followed. With
    `replace=False` a file that is there already is left alone, and `FileExistsError` is raised: of several processes
    that write to one name at once, one gets it.
    """
    target = os.path.realpath(path)
    folder, ending = os.path.dirname(target), os.path.splitext(target)[1]
    sweep(folder)
    temporary = os.path.join(folder, f".stepwell-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.part{ending}")
    _unfinished.add(temporary)
    try:
        write(temporary)
        _flush(temporary)
        if replace:
            os.replace(temporary, target)
        else:
            _rename_new(temporary, target)
        with contextlib.suppress(OSError):  # the renaming is done either way, so that a failure changes nothing
            _flush(folder, os.O_RDONLY)
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    finally:  # nothing is left to remove where the renaming was done
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        _unfinished.discard(temporary)
    return Path(path)


def write_bytes(path: str | os.PathLike, data: bytes, *, replace: bool = True) -> Path:
    """Write a file, whole or not at all; `replace` as for `write_whole`."""

    def write(name: str) -> None:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        with open(descriptor, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]

    return write_whole(path, write, replace=replace)


def write_text(path: str | os.PathLike, text: str) -> Path:
    """Write a text file, whole or not at all."""
    return write_bytes(path, text.encode("utf-8"))


def keep_elsewhere(name: str, data: bytes) -> Path | None:
    """Write data in a new folder of the user's state folder, or of the temporary one; None if neither has room."""
    import platformdirs

    state = platformdirs.user_state_path("stepwell", appauthor=False)  # not absolute where there is no home
    for parent in (*([state] if state.is_absolute() else []), Path(tempfile.gettempdir())):
        folder = None
        try:
            parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="stepwell-", dir=parent))
            return write_bytes(folder / name, data)
        except OSError:
            if folder is not None:
                with contextlib.suppress(OSError):
                    folder.rmdir()
    return None


def why(error: OSError) -> str:
    """The reason that the system gave, such as "No space left on device"."""
    return error.strerror or str(error)


def end_at_once(status: int) -> NoReturn:
    """End the process from a signal handler, and remove what it was writing.

    An exception would be lost if the signal arrives while Python runs a callback of its garbage collector.
    """
    try:
        for temporary in tuple(_unfinished):
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    finally:
        os._exit(status)


def _rename_new(temporary: str, target: str) -> None:
    """Rename, unless there is a file of that name. A hard link decides at once; not all file systems have them."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.replace(temporary, target)


def _flush(path: str, flags: int = os.O_RDWR) -> None:
    """Wait until the file is on the disk."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(descriptor)


def sweep(folder: str | os.PathLike) -> list[Path]:
    """Remove temporary files left by processes of this machine that were killed while they wrote; what was removed.

    A time in the future counts as long ago: the clock was set back.
    """
    removed = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            part = _PART.fullmatch(entry.name)
            if part is None or part[1] != _machine() or _alive(int(part[2])):
                continue
            with contextlib.suppress(OSError):
                if abs(time.time() - entry.stat(follow_symlinks=False).st_mtime) > _ABANDONED:
                    os.unlink(entry.path)
                    removed.append(Path(entry.path))
    return removed


def is_temporary(name: str) -> bool:
    """Whether a file of this name is being written, or was left by a process that was killed."""
    return _PART.fullmatch(name) is not None


def _machine() -> str:
    """A short name of this machine: folders may be shared, and numbers of processes mean nothing elsewhere."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _alive(process: int) -> bool:
    if sys.platform == "win32":
        return True  # there is no harmless signal to ask with
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True
