"""Native functions that XLA calls, built from C on the machine they run on, at first use.

The C compiler is the system's (`cc`, or what `CC` names); what it makes is kept beside the compiled programs (see
`_cache`). Without a compiler, or with `STEPWELL_NATIVE=off`, there are none, and callers do the same with JAX alone.
"""

import contextlib
import ctypes
import functools
import hashlib
import itertools
import os
import re
import shlex
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stepwell._cache import compiled_programs

VARIABLE = "STEPWELL_NATIVE"
_OPTIONS = ("-O3", "-march=native", "-fPIC", "-shared")
_SECONDS = 60


@functools.lru_cache
def available(source: Path, element: str, function: str | None = None) -> str | None:
    """The name under which XLA knows a function of a C file, for elements `double` or `float`; None if there is none.

    Unless it is named, the function has the name of the file, without leading underscores.
    """
    import jax

    if os.environ.get(VARIABLE) == "off" or jax.default_backend() != "cpu":
        return None
    function = function or source.stem.lstrip("_")
    target = f"stepwell_{function}_{element}"
    with contextlib.suppress(OSError, subprocess.SubprocessError, AttributeError, ValueError):
        library = ctypes.CDLL(str(_built(source, element)))
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, function)), platform="cpu")
        return target
    return None


def _built(source: Path, element: str) -> Path:
    """The shared library, built if it is not there. Several processes may build it at once: the last one stays."""
    import jax

    command = [*shlex.split(os.environ.get("CC", "cc")), *_OPTIONS, f"-DREAL={element}", f"-I{jax.ffi.include_dir()}"]
    told = "\0".join([*command, *_texts(source), jax.__version__])
    folder = Path(compiled_programs() or tempfile.mkdtemp(prefix="stepwell-"))
    library = folder / f"{source.stem}-{element}-{hashlib.sha256(told.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        handle, unfinished = tempfile.mkstemp(dir=folder, suffix=".so")
        os.close(handle)
        try:
            build = [*command, "-o", unfinished, str(source), "-lpthread"]
            subprocess.run(build, check=True, capture_output=True, timeout=_SECONDS)
            os.chmod(unfinished, 0o755)
            with open(unfinished, "rb") as built:
                os.fsync(built.fileno())  # half a library would crash every run that loads it
            os.replace(unfinished, library)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(unfinished)
    return library


def _texts(source: Path) -> list[str]:
    """Of the file and of all files of ours that it includes."""
    text = source.read_text()
    included = [source.parent / name for name in re.findall(r'^#include "(.*)"', text, re.MULTILINE)]
    return [text, *(inner for path in included if path.exists() for inner in _texts(path))]


def build_all() -> None:
    """Build every native function of the package, in both precisions, now rather than at first use."""
    if os.environ.get(VARIABLE) == "off" or compiled_programs() is None:
        return
    wanted = itertools.product(sorted(Path(__file__).parent.rglob("*.c")), ("double", "float"))
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda each: _built(*each), wanted))


if __name__ == "__main__":
    try:
        build_all()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"no native functions, JAX alone will do their work: {error}")
