"""Standard streams that a command survives: a full disk, a closed pipe, a terminal without Unicode."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any


class Stream:
    """A text stream that never raises. The first error is kept, and what comes after it is dropped.

    Characters that the stream's encoding lacks are replaced. All but writing is left to the stream itself.
    """

    def __init__(self, stream: Any):
        self._stream = io.StringIO() if stream is None else stream  # None where the process was started without one
        self.error: Exception | None = None

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._try(self._stream.write, text.encode(encoding, errors="replace").decode(encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, action: Any, *given: str) -> None:
        if self.error is None:
            try:
                action(*given)
            except (OSError, ValueError) as error:  # ValueError: it was closed
                self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def surviving_output() -> Iterator[tuple[Stream, Stream]]:
    """Standard output and error as `Stream` in this context, flushed at its end."""
    before = sys.stdout, sys.stderr
    streams = Stream(sys.stdout), Stream(sys.stderr)
    sys.stdout, sys.stderr = streams  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield streams
    finally:
        sys.stdout, sys.stderr = before
        for stream, original, number in zip(streams, before, (1, 2), strict=True):
            stream.flush()
            if stream.error is not None and original in (sys.__stdout__, sys.__stderr__):
                _discard(number)


def _discard(number: int) -> None:
    """Send what is left in Python's buffer nowhere: it would be written again when the process ends, and fail again."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
