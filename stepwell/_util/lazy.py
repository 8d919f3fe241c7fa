"""Names of a package that are imported when they are first used, listed once: under its `if TYPE_CHECKING:`."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LISTED = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return the `__getattr__` of a package and the names that it imports.

    These are the indented lines `from ._module import name as name` of its file, which type checkers read as imports.
    """
    places = {name: place for place, name in _LISTED.findall(Path(file).read_text(encoding="utf-8"))}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == ".":
            return importlib.import_module(f".{name}", package)
        return getattr(importlib.import_module(places[name], package), name)

    return load, list(places)
