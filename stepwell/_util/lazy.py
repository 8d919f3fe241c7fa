"""Names of a package that are imported when they are first used, listed once: under its `if TYPE_CHECKING:`."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_EXPORTED = re.compile(r"^(?:    )?from (\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` of a package, and a `__dir__` that lists what it exports.

    Its file has a line `from ._module import name as name` for each, indented where it is imported on first use.
    """
    places = {name: place for place, name in _EXPORTED.findall(Path(file).read_text(encoding="utf-8"))}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == ".":
            return importlib.import_module(f".{name}", package)
        return getattr(importlib.import_module(places[name], package), name)

    return load, lambda: sorted(places)
