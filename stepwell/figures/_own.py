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

from stepwell._util.errors import InvalidInput
from stepwell._util.text import error_line

from ._claim import PART, slug
from ._figure import Figure

GROUP = "stepwell.figures"
"""The entry points by which a package offers figures: a name, such as `mypaper/fig1`, and the module with `FIGURE`."""
_NAME = re.compile(rf"{PART}/{PART}")


def is_name(name: Any) -> TypeGuard[str]:
    """Whether this could be the name of a figure, PAPER/FIGURE.

    **Arguments:**

    - `name`: anything.

    **Returns:** True for a text such as `own/first`: lower-case letters, digits, dots and hyphens around one slash.

    **Example:**

    >>> from stepwell.figures import is_name
    >>> is_name("own/first"), is_name("Own Figure")
    (True, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def name_in_file(path: Path) -> str:
    """The name of the figure in a file: `name` of its `Figure`, or `own/` and the name of the file. Nothing is run."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read the figure {path} ({error.strerror or error}); check the name") from None
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"{path} is not a Python file ({error_line(error)})") from None
    name = f"own/{slug(path.stem.lstrip('_'))}"
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "FIGURE" for t in node.targets):
            given = node.value.keywords if isinstance(node.value, ast.Call) else []
            for keyword in given:
                if keyword.arg == "name":
                    name = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    if not is_name(name):
        raise InvalidInput(
            f"the figure of {path} has the name {name!r}; it must be a string PAPER/FIGURE of lower-case letters, "
            "digits, dots and hyphens, such as 'own/first'"
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


def load(place: str) -> Figure[Any]:
    """The figure of a module, from a dotted name or the path of a file, which may import files beside it."""
    module = _of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    made = vars(module).get("FIGURE")
    if not isinstance(made, Figure):
        raise InvalidInput(
            f"the figure {place} has no FIGURE = Figure(…); `stepwell new figure NAME` writes one that has"
        )
    return made


def _of_file(path: Path) -> ModuleType:
    name = f"stepwell_figure_{slug(str(path)).replace('-', '_').replace('.', '_')}"
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
