"""The figures of this package, found by their files, and others that are added: each is imported when it is run."""

import ast
import dataclasses
import difflib
import importlib.resources
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown

from ._figure import Figure
from ._own import load, name_in_file, offered

_PAPERS = importlib.resources.files("stepwell").joinpath("papers")


def _title(paper: Traversable) -> str:
    """The first line of the docstring of a paper's folder, which is not imported for it."""
    source = paper.joinpath("__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or paper.name).split("\n")[0].removesuffix(".")


def _in_package() -> dict[str, str]:
    """Figures of this package: `papers/linear/fig03_staircase.py` is `linear/fig3`, `beyond.py` is `linear/beyond`."""
    found = {}
    for paper in PAPERS:
        for file in _PAPERS.joinpath(paper).iterdir():
            stem, suffix = os.path.splitext(file.name)
            if suffix != ".py" or stem.startswith("_"):
                continue
            number = re.match(r"fig(\d+)_", stem)
            name = f"fig{int(number[1])}" if number else stem.replace("_", "-")
            order = paper, int(number[1]) if number else sys.maxsize, name
            found[order] = f"{paper}/{name}", f"stepwell.papers.{paper}.{stem}"
    return dict(found[order] for order in sorted(found))


PAPERS = {
    paper.name: _title(paper)
    for paper in sorted(_PAPERS.iterdir(), key=lambda paper: paper.name)
    if paper.joinpath("__init__.py").is_file()
}
"""The papers: a folder each in `stepwell/papers`, and the first line of what it says about itself."""

FIGURES = _in_package()
"""The figures, numbered ones first: the module or the file of each, by its name."""


def select(targets: Sequence[str]) -> list[str]:
    """The figures meant by targets such as `linear`, `linear/fig1` or `fig14`.

    **Arguments:**

    - `targets`: names of papers or of figures, or of figures without the paper where one paper alone has it; an empty
      list means all figures.

    **Returns:** the names of the figures, each once, in the order of `FIGURES`.

    **Example:**

    >>> from stepwell.figures import select
    >>> select(["linear/fig3", "linear/fig1", "fig14"])
    ['linear/fig1', 'linear/fig3', 'linear/fig14']
    >>> len(select(["linear"])) + len(select(["softmax"])) == len(select([]))
    True
    """
    if isinstance(targets, str) or not isinstance(targets, Iterable):
        raise InvalidInput(f"targets is {shown(targets)}; it must be a list of names, such as ['linear/fig1']")
    add_offered()
    chosen, targets = set(), [*targets]
    for target in targets:
        matching = [name for name in FIGURES if isinstance(target, str) and target in (name, name.partition("/")[0])]
        if not matching and isinstance(target, str):
            matching = [name for name in FIGURES if target and target == name.partition("/")[2]]
            if len(matching) > 1:
                raise InvalidInput(f"the target {target} is {' or '.join(matching)}; write one of them")
        if not matching:
            given = target if isinstance(target, str) and len(target) < 80 else shown(target)
            raise InvalidInput(f"there is no target {given}; {_meant(given, 'targets', [*PAPERS, *FIGURES])}")
        chosen.update(matching)
    return [name for name in FIGURES if not targets or name in chosen]


def figure(name: str) -> Figure[Any]:
    """Return a figure; its module is imported now if it was not before.

    **Arguments:**

    - `name`: the figure, one of `FIGURES`, such as `linear/fig1`.

    **Returns:** the `Figure`.

    **Example:**

    >>> from stepwell.figures import figure
    >>> figure("linear/conservation").title
    'Gradient flow conserves the balance of value, key and query in each head'
    """
    if not isinstance(name, str) or name not in FIGURES:
        raise InvalidInput(f"there is no figure {shown(name)}; {_meant(shown(name), 'figures', [*FIGURES])}")
    return dataclasses.replace(load(FIGURES[name]), name=name)


def add_figure(path: str | os.PathLike) -> str:
    """List a figure of your own, so that it can be run, reported and checked as those of the papers.

    **Arguments:**

    - `path`: a Python file in which `FIGURE` is a `Figure`. It is called as its `name` says, such as `own/first`, or
      else `own/` and the name of the file.

    **Returns:** the name of the figure. The file is read, and run when its figure is made.

    **Example:**

    >>> from pathlib import Path
    >>> from stepwell.figures import FIGURES, add_figure
    >>> _ = Path("first.py").write_text("FIGURE = None")
    >>> add_figure("first.py")
    'own/first'
    >>> del FIGURES["own/first"]
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput(f"path is {shown(path)}; it must be the name of a Python file, such as 'my_figure.py'")
    place = Path(path).resolve()
    if place.suffix != ".py":
        raise InvalidInput(f"the figure {path} is not a Python file; its name must end in .py")
    name = name_in_file(place)
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
    for name, (module, package) in offered().items():
        FIGURES.setdefault(name, module)
        PAPERS.setdefault(name.partition("/")[0], f"Figures of {package}")


def _meant(given: str, kind: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    return (f"did you mean {near[0]}? " if near else "") + f"The {kind} are {', '.join(known)}"
