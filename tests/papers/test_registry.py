"""Every listed figure has what the protocol of figures asks for."""

import re
from pathlib import Path

import pytest

from stepwell._errors import InvalidInput
from stepwell.papers import FIGURES, PAPERS, FigureModule, figure, select

FOLDER = Path(__file__).parents[2] / "stepwell" / "papers"


@pytest.mark.parametrize("name", FIGURES)
def test_a_listed_figure_fits_the_protocol(name: str):
    module = figure(name)
    assert isinstance(module, FigureModule)
    assert module.TITLE and module.CAPTION
    assert name.partition("/")[0] in PAPERS
    assert module.settings(True).keys() == module.settings(False).keys()


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
    with pytest.raises(InvalidInput, match="The targets are linear"):
        select(["zzzz"])


def test_a_target_of_any_length_is_answered_in_a_line():
    with pytest.raises(InvalidInput) as caught:
        select(["9" * 5000])
    assert len(str(caught.value)) < 2000
