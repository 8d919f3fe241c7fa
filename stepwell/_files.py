"""Files appear whole or not at all: written under a temporary name, then renamed."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ._errors import InvalidInput

_unfinished: set[str] = set()


def writable_folder(path: str | os.PathLike) -> Path:
    """The folder, made if need be; `InvalidInput` if it cannot be written."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"cannot write to the folder {folder} ({reason}); name another one with --out") from None
    return folder


def write_whole(path: str | os.PathLike, write: Callable[[str], None]) -> Path:
    """Call `write` with a temporary name beside `path` (same ending), then rename it to `path`."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.", suffix=target.suffix)
    _unfinished.add(temporary)
    os.close(handle)
    try:
        write(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    finally:  # nothing is left to remove where the renaming was done
        Path(temporary).unlink(missing_ok=True)
        _unfinished.discard(temporary)
    return target


def end_at_once(status: int) -> NoReturn:
    """End the process from a signal handler, and remove what it was writing.

    An exception raised by the handler would not do: it is lost if the signal arrives while Python runs a callback of
    its garbage collector, and the process goes on.
    """
    try:
        for temporary in tuple(_unfinished):
            with contextlib.suppress(OSError):
                os.unlink(temporary)
    finally:
        os._exit(status)


def write_text(path: str | os.PathLike, text: str) -> Path:
    """Write a text file, whole or not at all."""

    def write(name: str) -> None:
        Path(name).write_text(text, encoding="utf-8")

    return write_whole(path, write)


def write_bytes(path: str | os.PathLike, data: bytes) -> Path:
    """Write a file, whole or not at all. It is on the disk before it has its name, and so outlives a loss of power."""

    def write(name: str) -> None:
        with open(name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    target = write_whole(path, write)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return target


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
