"""Every listed figure is a `Figure`."""

import ast
import re
from pathlib import Path

import pytest

from stepwell._util.errors import InvalidInput
from stepwell.figures import FIGURES, PAPERS, Figure, figure, select

FOLDER = Path(__file__).parents[2] / "stepwell" / "papers"


@pytest.mark.parametrize("name", FIGURES)
def test_a_listed_figure_is_whole(name: str):
    listed = figure(name)
    assert isinstance(listed, Figure) and listed.name == name
    assert listed.title and listed.caption
    assert name.partition("/")[0] in PAPERS
    assert listed.described(listed.at(True)).keys() == listed.described(listed.at(False)).keys()
    assert type(listed.at(True)) is type(listed.at(False))


def test_every_figure_file_is_listed_once():
    files = {f"stepwell.papers.{path.parent.name}.{path.stem}" for path in FOLDER.glob("*/[!_]*.py")}
    assert sorted(FIGURES.values()) == sorted(files)


def test_targets():
    assert select([]) == list(FIGURES)
    assert select(["linear"]) == [name for name in FIGURES if name.startswith("linear/")]
    assert select(["linear/fig1", "linear/fig1"]) == ["linear/fig1"]


@pytest.mark.parametrize(
    ("wrong", "near"), [("linear/fig01", "linear/fig1"), ("liner", "linear"), ("LINEAR/fig1", "fig1")]
)
def test_an_unknown_target_names_the_near_one_and_the_list(wrong: str, near: str):
    with pytest.raises(InvalidInput, match=re.escape(near)) as caught:
        select([wrong])
    assert all(name in str(caught.value) for name in FIGURES)
    assert "\n" not in str(caught.value)


def test_nothing_like_a_target_gets_the_list_alone():
    with pytest.raises(InvalidInput, match="; the targets are linear.* its file, such as first.py"):
        select(["zzzz"])


def test_a_target_of_any_length_is_answered_in_a_line():
    with pytest.raises(InvalidInput) as caught:
        select(["9" * 5000])
    assert len(str(caught.value)) < 2000


def named(path: Path) -> str:
    """The figure in a file, so that `-k PAPER/NAME` runs what is about it; of another file its path."""
    names = {module: name for name, module in FIGURES.items()}
    return names.get(f"stepwell.papers.{path.parent.name}.{path.stem}", f"{path.parent.name}/{path.stem}")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.py")), ids=named)
def test_a_paper_uses_what_a_figure_of_ones_own_can_use(path: Path):
    """Public modules of the package, and the files of its own folder."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".")
            names = [alias.name for alias in node.names]
            assert node.level <= 1, f"{path.name} imports from outside its folder by a relative name"
            if node.level == 0 and parts[0] == "stepwell":
                private = [name for name in (*parts, *names) if name.startswith("_")]
                assert not private, f"{path.name} imports {node.module}, which is private"
        elif isinstance(node, ast.Import):
            assert not any(alias.name.startswith("stepwell._") for alias in node.names)
