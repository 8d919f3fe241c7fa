"""Shared libraries of kernels, compiled once for the processor at hand and kept in the cache folder.

A library is named after everything that goes into it, and its checksum lies beside it: what is damaged is built anew,
and what another user owns or could have changed is refused.
"""

import contextlib
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stepwell._util.cache import cache, untrusted

from ._processor import options

_OPTIONS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fopenmp-simd", "-fPIC", "-shared")
"""Without `errno` a square root is an instruction, of all lanes at once, and no call. OpenMP's `simd` is a word to the
compiler alone (`SUM` in `vectors.h`), without threads."""
_SECONDS = 600
_UNFINISHED = ".build-"
_TEMPORARY = "stepwell-kernel-"
_LINES = 8
"""Lines of the compiler's message that are shown, at the most."""


class BuildFailed(Exception):
    """The compiler is missing or ended with an error; the message has its own words."""


def compiler() -> list[str]:
    """`cc`, or what `CC` names."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def command(source: Path, element: str, level: str, output: Path) -> list[str]:
    """The command that compiles a C file for elements `double` or `float` and a level."""
    import jax

    flags = [*_OPTIONS, *options(level), f"-DREAL={element}", f"-I{jax.ffi.include_dir()}"]
    return [*compiler(), *flags, "-o", str(output), str(source), "-lpthread"]


def compile_library(source: Path, element: str, level: str, output: Path) -> None:
    """Compile one library; `BuildFailed` with the compiler's message if that cannot be done."""
    line = command(source, element, level, output)
    what = f"`{shlex.join([*compiler(), *options(level), source.name])}`"
    try:
        subprocess.run(line, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()[:_LINES] or ["(nothing)"]
        raise BuildFailed(f"{what} ended with status {error.returncode}: " + "\n    ".join(said)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{what} could not be run: {error}") from None


@contextlib.contextmanager
def library(source: Path, element: str, level: str) -> Iterator[Path]:
    """A library that can be loaded now, built if need be. Without a cache folder it is gone afterwards."""
    folder = cache().folder
    if folder is None:
        _sweep(Path(tempfile.gettempdir()), _TEMPORARY)
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY) as own:
            path = Path(own) / f"{source.stem}.so"
            compile_library(source, element, level, path)
            yield path
    else:
        path = Path(folder) / f"{source.stem}-{element}-{_fingerprint(source, element, level)}.so"
        if not _sound(path):
            _build(source, element, level, path)
        yield path


def _sound(path: Path) -> bool:
    """Whether the library is there and is what was built; `BuildFailed` if somebody else could have put it there."""
    checksum = path.with_suffix(".sha256")
    try:
        for file in (path, checksum):
            reason = untrusted(file)
            if reason is not None:
                raise BuildFailed(f"a compiled kernel is not loaded, since {reason}; remove it")
        return checksum.read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, UnicodeDecodeError):
        return False


def _build(source: Path, element: str, level: str, path: Path) -> None:
    """Several processes may do so at once: each writes files of its own, and the last to rename them stays."""
    _sweep(path.parent, _UNFINISHED)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_UNFINISHED) as own:
        made = Path(own) / path.name
        compile_library(source, element, level, made)
        checksum = made.with_suffix(".sha256")
        checksum.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        for file in (made, checksum):
            file.chmod(0o700)  # `untrusted` else, where files are made for a group
            with open(file, "rb") as written:
                os.fsync(written.fileno())  # half a library would be built anew by the next process
        # The same text gives the same library, so that a checksum fits whichever process's library is there.
        os.replace(made, path)
        os.replace(checksum, path.with_suffix(".sha256"))


def _sweep(folder: Path, prefix: str) -> None:
    """Remove the folders in which processes that were killed have built, with nothing but libraries in them."""
    for left in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if untrusted(left) is None and time.time() - left.stat().st_mtime > _SECONDS:
                for file in (*left.glob("*.so"), *left.glob("*.sha256")):
                    file.unlink()
                left.rmdir()


def _fingerprint(source: Path, element: str, level: str) -> str:
    """A digest of the text, the compiler and its options, and the version of XLA's interface.

    Not of where JAX is installed: all environments of one version share a library.
    """
    import jax

    parts = [*compiler(), *_OPTIONS, *options(level), element, *map(_version, compiler()), *texts(source)]
    parts.append(jax.__version__)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.lru_cache
def _version(program: str) -> str:
    """Where the compiler is and when it last changed: an update may compile differently."""
    path = shutil.which(program)
    return "" if path is None else f"{path} {os.stat(path).st_mtime_ns}"


def texts(source: Path) -> list[str]:
    """The text of a C file and of all files of ours that it includes."""
    text = source.read_text()
    included = [source.parent / name for name in re.findall(r'^#include "(.*)"', text, re.MULTILINE)]
    return [text, *(inner for path in included if path.exists() for inner in texts(path))]
