"""Figures that are not of this package: modules in files of the user's, and those that installed packages offer."""

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from stepwell._errors import InvalidInput
from stepwell._text import error_line

from ._claim import PART, slug

GROUP = "stepwell.figures"
"""The entry points by which a package offers figures: a name, such as `mypaper/fig1`, and the module."""
_REQUIRED = ("TITLE", "CAPTION", "simulate", "claims", "draw")
_NAME = re.compile(rf"{PART}/{PART}")


def is_name(name: Any) -> TypeGuard[str]:
    """Whether this could be the name of a figure, PAPER/FIGURE.

    **Arguments:**

    - `name`: anything.

    **Returns:** True for a text such as `own/first`: lower-case letters, digits, dots and hyphens around one slash.

    **Example:**

    >>> from stepwell.papers import is_name
    >>> is_name("own/first"), is_name("Own Figure")
    (True, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def name_in_file(path: Path) -> str:
    """The name of the figure in a file: its `NAME`, or `own/` and the name of the file. Nothing is run."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read the figure {path} ({error.strerror or error}); check the name") from None
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"{path} is not a Python file ({error_line(error)})") from None
    name = f"own/{slug(path.stem.lstrip('_'))}"
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == "NAME" for one in node.targets):
            name = node.value.value if isinstance(node.value, ast.Constant) else None
    if not is_name(name):
        raise InvalidInput(
            f"{path} has NAME = {name!r}; it must be a text PAPER/FIGURE of lower-case letters, digits, dots and "
            "hyphens, such as 'own/first'"
        )
    return name


@functools.cache
def offered() -> dict[str, tuple[str, str]]:
    """Figures of installed packages by name: the module, and the package that offers it.

    A name without a slash is one of the package's own: `fig1` of the package `mypaper` is `mypaper/fig1`.
    """
    figures = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        package = slug(point.dist.name) if point.dist is not None else "own"
        name = point.name if "/" in point.name else f"{package}/{slug(point.name)}"
        if is_name(name):
            figures[name] = point.value, package
    return figures


def module_name(place: str) -> str:
    """What the module of a figure is called, from a dotted name or the path of a file."""
    if not place.endswith(".py"):
        return place
    return f"stepwell_figure_{slug(place).replace('-', '_').replace('.', '_')}"


def load(place: str) -> ModuleType:
    """The module of a figure, from a dotted name or the path of a file, which may import files beside it."""
    module = _of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    missing = [part for part in _REQUIRED if part not in vars(module)]
    if missing:
        raise InvalidInput(
            f"the figure {place} has no {', '.join(missing)}; it must have {', '.join(_REQUIRED)}, and `stepwell new "
            "figure NAME` writes one that has"
        )
    vars(module).setdefault("PAPER_SETTINGS", {})
    vars(module).setdefault("settings", lambda quick: {})
    return module


def _of_file(path: Path) -> ModuleType:
    name = module_name(str(path))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module  # classes that are defined in it look it up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
