"""The figures there are, each listed once, by the name of its module or file, imported when the figure is run."""

import dataclasses
import difflib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stepwell._errors import InvalidInput
from stepwell._text import shown

from ._figure import Figure
from ._own import load, name_in_file, offered

PAPERS = {
    "linear": "Training Dynamics of In-Context Learning in Linear Attention (Zhang et al., arXiv 2501.16265)",
    "softmax": "Training Dynamics of Multi-Head Softmax Attention for In-Context Learning "
    "(Chen et al., arXiv 2402.19442)",
}

FIGURES = {
    "linear/fig1": "stepwell.papers.linear_attention.fig01_merged_is_mlp",
    "linear/fig2": "stepwell.papers.linear_attention.fig02_convolution",
    "linear/fig3": "stepwell.papers.linear_attention.fig03_staircase",
    "linear/fig4": "stepwell.papers.linear_attention.fig04_low_rank",
    "linear/fig5": "stepwell.papers.linear_attention.fig05_softmax",
    "linear/fig6": "stepwell.papers.linear_attention.fig06_init_scale",
    "linear/fig11": "stepwell.papers.linear_attention.fig11_new_pair",
    "linear/fig12": "stepwell.papers.linear_attention.fig12_low_rank",
    "linear/fig14": "stepwell.papers.linear_attention.fig14_in_weight",
    "linear/conservation": "stepwell.papers.linear_attention.conservation",
    "linear/label-blocks": "stepwell.papers.linear_attention.label_blocks",
    "linear/varying-lengths": "stepwell.papers.linear_attention.varying_lengths",
    "linear/escape-times": "stepwell.papers.linear_attention.escape_times",
    "linear/landscape": "stepwell.papers.linear_attention.landscape",
    "linear/in-context-pcr": "stepwell.papers.linear_attention.in_context_pcr",
    "linear/beyond": "stepwell.papers.linear_attention.beyond",
    "softmax/fig1": "stepwell.papers.softmax_attention.fig01_emergence",
    "softmax/fig2": "stepwell.papers.softmax_attention.fig02_blocks",
    "softmax/fig3": "stepwell.papers.softmax_attention.fig03_reduced_dynamics",
    "softmax/fig4": "stepwell.papers.softmax_attention.fig04_lower_bound",
    "softmax/fig5": "stepwell.papers.softmax_attention.fig05_baselines",
    "softmax/length-generalisation": "stepwell.papers.softmax_attention.length_generalisation",
    "softmax/regimes": "stepwell.papers.softmax_attention.regimes",
    "softmax/nonlinear": "stepwell.papers.softmax_attention.nonlinear",
    "softmax/allocation": "stepwell.papers.softmax_attention.allocation",
    "softmax/single-head": "stepwell.papers.softmax_attention.single_head",
    "softmax/sign-pairs": "stepwell.papers.softmax_attention.sign_pairs",
}


def select(targets: Sequence[str]) -> list[str]:
    """The figures meant by targets such as `linear`, `linear/fig1` or `fig14`.

    **Arguments:**

    - `targets`: names of papers or of figures, or of figures without the paper where one paper alone has it; an empty
      list means all figures.

    **Returns:** the names of the figures, each once, in the order of `FIGURES`.

    **Example:**

    >>> from stepwell.papers import select
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

    >>> from stepwell.papers import figure
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
    >>> from stepwell.papers import FIGURES, add_figure
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

    >>> from stepwell.papers import add_offered
    >>> add_offered()
    """
    for name, (module, package) in offered().items():
        FIGURES.setdefault(name, module)
        PAPERS.setdefault(name.partition("/")[0], f"Figures of {package}")


def _meant(given: str, kind: str, known: list[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    return (f"did you mean {near[0]}? " if near else "") + f"The {kind} are {', '.join(known)}"
