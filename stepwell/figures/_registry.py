"""The figures of this package, found by their files, those of your own and of other packages: imported when run."""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import modulefinder
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.text import error_line, nearest_of, shown
from stepwell._util.versions import versions

from ._claim import PART, slug
from ._figure import Figure

GROUP = "stepwell.figures"
"""The entry points by which a package offers figures: a name, such as `mypaper/fig1`, and the module with `FIGURE`."""
NAME = re.compile(rf"{PART}/{PART}")
_PACKAGE = Path(__file__).parents[1]
_folders: list[str] = []
"""Folders of figures' files, the latest first. They stand last in `sys.path`: no file there hides a library."""


def _title(paper: Path) -> str:
    """The first line of the docstring of a paper's folder, which is not imported for it."""
    source = (paper / "__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or paper.name).split("\n")[0].removesuffix(".")


def _in_package() -> dict[str, str]:
    """Figures of this package: `papers/linear/fig03_staircase.py` is `linear/fig3`, `beyond.py` is `linear/beyond`."""
    listed = {}
    for file in _PACKAGE.glob("papers/*/[!_]*.py"):
        paper, number = slug(file.parent.name), re.match(r"fig(\d+)_", file.stem)
        name = f"fig{int(number[1])}" if number else slug(file.stem)
        order = paper, int(number[1]) if number else sys.maxsize, name
        listed[order] = f"{paper}/{name}", f"stepwell.papers.{file.parent.name}.{file.stem}"
    return dict(listed[order] for order in sorted(listed))


PAPERS = {slug(file.parent.name): _title(file.parent) for file in sorted(_PACKAGE.glob("papers/*/__init__.py"))}
"""The papers: a folder each in `stepwell/papers`, and the first line of what it says about itself."""

FIGURES = _in_package()
"""The figures, numbered ones first: the module or the file of each, by its name."""


@checked
def select(targets: Sequence[str]) -> list[str]:
    """Return the figures meant by targets such as `linear`, `linear/fig1` or `fig14`.

    **Arguments:**

    - `targets`: names of papers or of figures, or of figures without the paper where one paper alone has it; an empty
      list means all figures.

    **Returns:** the names of the figures, each once, in the order of `FIGURES`.

    **Example:**

    >>> from stepwell.figures import select
    >>> select(["linear/fig3", "linear/fig1", "fig14"])
    ['linear/fig1', 'linear/fig3', 'linear/fig14']
    >>> set(select(["linear"])) < set(select([]))
    True
    """
    add_offered()
    chosen = set()
    for target in targets:
        matching = [name for name in FIGURES if target in (name, name.partition("/")[0])]
        if not matching:
            matching = [name for name in FIGURES if target == name.partition("/")[2]]
            if len(matching) > 1:
                raise InvalidInput(f"the target {target} is {' or '.join(matching)}; write one of them")
        if not matching:
            raise InvalidInput(
                f"there is no target {shown(target)}; {_meant(target, 'targets', [*PAPERS, *FIGURES])}; a figure of "
                "your own is given by its file, such as first.py"
            )
        chosen.update(matching)
    return [name for name in FIGURES if len(targets) == 0 or name in chosen]


@checked
def figure(name: str) -> Figure[Any]:
    """Return a figure, from its module, which is imported now if it was not before.

    **Arguments:**

    - `name`: the figure, one of `FIGURES`, such as `linear/fig1`.

    **Returns:** the `Figure`.

    **Example:**

    >>> from stepwell.figures import figure
    >>> figure("linear/conservation").title
    'Gradient flow conserves the balance of value, key and query in each head, and is the limit of descent'
    """
    if name not in FIGURES:
        raise InvalidInput(f"there is no figure {shown(name)}; {_meant(name, 'figures', [*FIGURES])}")
    place = FIGURES[name]
    module = _of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    made = vars(module).get("FIGURE")
    if not isinstance(made, Figure):
        raise InvalidInput(
            f"the figure {place} has no FIGURE = Figure(…); `stepwell new figure NAME` writes one that has"
        )
    return dataclasses.replace(made, name=name)


@checked
def add_figure(path: str | os.PathLike) -> str:
    """List a figure of your own, so that it can be run, reported and checked as those of the papers.

    **Arguments:**

    - `path`: a Python file in which `FIGURE` is a `Figure`. It is called as its `name` says, such as `own/first`, or
      else `own/` and the name of the file. A file of this package's papers is the figure that is listed already.

    **Returns:** the name of the figure. The file is read now, and run when its figure is.

    **Example:**

    >>> from pathlib import Path
    >>> from stepwell.figures import FIGURES, add_figure
    >>> _ = Path("first.py").write_text("FIGURE = None")
    >>> add_figure("first.py")
    'own/first'
    >>> del FIGURES["own/first"]
    """
    place = Path(path).resolve()
    if place.suffix != ".py":
        raise InvalidInput(f"the figure {path} is not a Python file; its name must end in .py")
    listed = [name for name, module in FIGURES.items() if place == _PACKAGE.parent / f"{module.replace('.', '/')}.py"]
    if listed:
        return listed[0]
    name = _name_in_file(place)
    if FIGURES.get(name, str(place)) != str(place):
        raise InvalidInput(f"{path} is called {name}, as another figure is ({FIGURES[name]}); choose another name")
    FIGURES[name] = str(place)
    return name


def add_offered() -> None:
    """List the figures that installed packages offer, by entry points of the group `stepwell.figures`.

    A name that is taken already is left to the figure that has it.

    **Example:**

    >>> from stepwell.figures import add_offered
    >>> add_offered()
    """
    for point in importlib.metadata.entry_points(group=GROUP):
        package = slug(point.dist.name) if point.dist is not None else "own"
        name = point.name if "/" in point.name else f"{package}/{slug(point.name)}"
        if NAME.fullmatch(name):
            FIGURES.setdefault(name, point.value)
            PAPERS.setdefault(name.partition("/")[0], f"Figures of {package}")


def _meant(given: str, kind: str, known: list[str]) -> str:
    near = nearest_of(given, known)
    return (f"did you mean {near}? The" if near else "the") + f" {kind} are {', '.join(known)}"


def _name_in_file(path: Path) -> str:
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
            for keyword in node.value.keywords if isinstance(node.value, ast.Call) else []:
                if keyword.arg == "name":
                    name = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInput(
            f"the figure of {path} has the name {name!r}; it must be a string PAPER/FIGURE of lower-case letters, "
            "digits, dots and hyphens, such as 'own/first'"
        )
    return name


def _of_file(path: Path) -> ModuleType:
    """The module in a file, which may import files beside it. It is run again when one of them has changed."""
    sources = _sources(str(path))
    name = f"stepwell_figure_{slug(str(path)).replace('-', '_').replace('.', '_')}_{_digest(sources)}"
    if name in sys.modules:
        return sys.modules[name]
    _put_beside(path.parent, {source.relative_to(path.parent).parts[0].removesuffix(".py") for source in sources})
    for source in sources:  # Python takes bytecode for current by whole seconds and the length of the source
        with contextlib.suppress(OSError):
            Path(importlib.util.cache_from_source(source)).unlink()
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes that are defined in it look it up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _put_beside(folder: Path, names: set[str]) -> None:
    """Let modules of these names be imported from a folder, as they are now, and from no other figure's folder."""
    kept = [place for place in sys.path if place not in _folders]
    if str(folder) not in kept:
        _folders[:] = [str(folder), *(one for one in _folders if one != str(folder))]
    sys.path[:] = [*kept, *_folders]
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] in names and any(Path(place).is_relative_to(one) for one in (folder, *_folders)):
            del sys.modules[name]


def program(figure: str) -> str:
    """Twelve digits of the sources and libraries that make a figure: where they agree, so do figures."""
    return hashlib.sha256(f"{_package()}{_digest(_sources(FIGURES[figure]))}".encode()).hexdigest()[:12]


def _sources(place: str) -> list[Path]:
    """The files outside this package that make a figure: its own and what it imports, or those of its package."""
    if place.endswith(".py"):
        finder = modulefinder.ModuleFinder([str(Path(place).parent)])
        with contextlib.suppress(OSError, SyntaxError, ValueError):  # an error of the file is raised when it is run
            finder.run_script(place)
        found = [vars(module).get("__file__") for module in finder.modules.values()]
        return sorted({Path(place), *(Path(file) for file in found if file)})
    package = place.partition(".")[0]
    if package == __name__.partition(".")[0]:
        return []
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was made in this process
        return []
    folders = () if spec is None else spec.submodule_search_locations or ()
    own = [Path(spec.origin)] if spec is not None and spec.origin and not folders else []
    return own + sorted(path for folder in folders for path in Path(folder).rglob("*.py"))


def _digest(sources: list[Path]) -> str:
    """Twelve digits of the names and contents of files."""
    contents = (f"{path.name}\0".encode() + path.read_bytes() for path in sources if path.is_file())
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]


@functools.cache
def _package() -> str:
    digest = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in (".py", ".c", ".h", ".npz"):
            digest.update(f"{path.relative_to(_PACKAGE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
