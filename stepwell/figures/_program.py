"""Which program makes a figure: a digest of its sources and of the libraries it computes with."""

import functools
import hashlib
import json
from pathlib import Path

from stepwell._util.versions import versions

from ._registry import FIGURES

_PACKAGE = Path(__file__).parents[1]
_SOURCES = (".py", ".c", ".h", ".npz")


def program(figure: str) -> str:
    """Twelve digits of a figure: where they are the same, the same settings give the same."""
    own = Path(FIGURES[figure])  # the name of a module, or a file outside the package
    content = own.read_bytes() if own.is_file() else b""
    return hashlib.sha256(_package().encode() + content).hexdigest()[:12]


@functools.cache
def _package() -> str:
    digest = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in _SOURCES and path.is_file():
            digest.update(f"{path.relative_to(_PACKAGE)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
