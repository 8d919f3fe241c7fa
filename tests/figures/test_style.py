"""The look of figures: powers of ten on the axes, and what is written to files."""

from pathlib import Path

import pytest

from stepwell._util.errors import InvalidInput
from stepwell.analysis.style import new_figure, save_figure, styled


def drawn(low: float = 1e-3, high: float = 1e4):
    with styled():
        figure = new_figure(3, 2)
        axes = figure.add_subplot()
        axes.loglog([low, high], [1, 10])
        axes.set_xlabel("$t/\\tau$")
    return figure


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(1e-3, 1e4, {"10⁻²", "10⁰", "10⁴"}), (2.0, 5.0, {"2×10⁰", "3×10⁰", "4×10⁰"})]
)
def test_powers_of_ten_are_plain_text(tmp_path: Path, low: float, high: float, expected: set[str]):
    figure = drawn(low, high)
    save_figure(figure, tmp_path / "a.svg")
    axis = figure.axes[0].xaxis
    labels = {label.get_text() for label in [*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)]}
    assert expected <= labels and not any("$" in label for label in labels)


def test_the_same_figure_gives_the_same_files(tmp_path: Path):
    for ending in ("svg", "pdf", "png"):
        save_figure(drawn(), tmp_path / f"a.{ending}")
        save_figure(drawn(), tmp_path / f"b.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    with pytest.raises(InvalidInput, match="svg, pdf or png"):
        save_figure(drawn(), tmp_path / "a.jpg")
    assert b"/Type0" in (tmp_path / "a.pdf").read_bytes()  # embedded as TrueType: text can be selected and searched
