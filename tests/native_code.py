"""C of the native passes, called from Python without XLA."""

import ctypes
import os
import shlex
import subprocess
from pathlib import Path

import jax

import stepwell
from stepwell import _native

PACKAGE = Path(stepwell.__file__).parent


def library(text: str, folder: Path, element: str, options: list[str]) -> ctypes.CDLL:
    """A C text compiled as the native passes are; it may include files of the package, as "tasks/_normals.c"."""
    source, built = folder / "text.c", folder / "text.so"
    source.write_text(text)
    included = [f"-I{PACKAGE}", f"-I{jax.ffi.include_dir()}"]
    command = [*shlex.split(os.environ.get("CC", "cc")), *_native._OPTIONS, *options, f"-DREAL={element}", *included]
    subprocess.run([*command, "-o", str(built), str(source), "-lpthread"], check=True, capture_output=True)
    return ctypes.CDLL(str(built))
