"""One style for all figures. No global state: a figure is a `matplotlib.figure.Figure`, and saving needs no screen."""

import io
import os
import re
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogFormatterSciNotation

from stepwell._util.errors import InvalidInput
from stepwell._util.files import write_bytes
from stepwell._util.text import superscript

BLACK = "#000000"
GRAY = "#767676"
BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
ORANGE = "#E69F00"
SKY = "#56B4E9"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Okabe and Ito's colors, which the color-blind can distinguish."""

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "text.usetex": False,
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # nothing is written above the axes, so it need not be looked for each time
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "figure.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "stepwell",
    "pdf.fonttype": 42,
}
_RESOLUTION = 160
"""Dots per inch of a PNG."""


def styled():
    """Return a context in which figures are made: `with styled(): …`.

    **Returns:** the context.

    **Example:**

    >>> from stepwell.analysis.style import new_figure, styled
    >>> with styled():
    ...     axes = new_figure(4.0, 3.0).subplots()
    >>> bool(axes.spines["top"].get_visible())
    False
    """
    return matplotlib.rc_context(_SETTINGS)  # pyright: ignore[reportArgumentType]


class _ShownFigure(Figure):
    """A figure that a notebook shows where it is the last line of a cell: Jupyter knows those of `pyplot` alone."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure with a canvas of its own, which `pyplot` does not know; notebooks show it.

    **Arguments:**

    - `width`: in inches.
    - `height`: in inches.

    **Returns:** the figure.

    **Example:**

    >>> from stepwell.analysis.style import new_figure
    >>> new_figure(4.0, 3.0).get_size_inches().tolist()
    [4.0, 3.0]
    """
    figure = _ShownFigure(figsize=(width, height), layout="constrained", dpi=_RESOLUTION)
    FigureCanvasAgg(figure)
    return figure


def panels_of(
    ax: Any, size: tuple[float, float], rows: int = 1, columns: int = 1, count: int = 1, **options: Any
) -> tuple[Any, list[Any]]:
    """A figure with its panels: a new one of this size, or that of the axes `ax`, of which there must be `count`."""
    if ax is None:
        figure = new_figure(*size)
        return figure, list(figure.subplots(rows, columns, squeeze=False, **options).ravel())
    given = [ax] if isinstance(ax, Axes) else list(ax.ravel() if isinstance(ax, np.ndarray) else ax)
    if len(given) != count or not all(isinstance(each, Axes) for each in given):
        what = "axes of matplotlib" if count == 1 else f"{count} axes of matplotlib, one for each panel"
        raise InvalidInput(f"ax is {given if len(given) <= 1 else f'{len(given)} things'}; give {what}")
    return given[0].figure, given


def save_figure(made: Figure, path: str | os.PathLike) -> None:
    """Write a figure in the format that the name ends in; the same figure gives the same bytes.

    The file is written whole or not at all.

    The layout is computed once and the canvases are called directly: `savefig` would compute it again for each format
    and draw everything twice. A constrained layout is fixed by the first call, so that further formats look the same.

    **Arguments:**

    - `made`: the figure. No screen is needed, and `pyplot` need not know it.
    - `path`: the file to write, with the ending svg, pdf or png.

    **Example:**

    >>> from pathlib import Path
    >>> from matplotlib.figure import Figure
    >>> from stepwell.analysis.style import save_figure
    >>> drawn = Figure(layout="constrained")
    >>> _ = drawn.subplots().plot([1.0, 0.6, 0.4])
    >>> save_figure(drawn, "loss.svg")
    >>> Path("loss.svg").exists()
    True
    """
    dpi, content = made.get_dpi(), io.BytesIO()
    with styled():
        layout = made.get_layout_engine()
        if isinstance(layout, ConstrainedLayoutEngine):
            _write_powers_plainly(made)
            layout.execute(made)
            made.set_layout_engine("none")
        match os.fspath(path).rpartition(".")[2]:
            case "svg":
                FigureCanvasSVG(made).print_svg(content, metadata={"Date": None, "Creator": None})
            case "pdf":
                nameless = {"CreationDate": None, "Creator": None, "Producer": None}
                FigureCanvasPdf(made).print_pdf(content, metadata=nameless)
            case "png":
                FigureCanvasAgg(made).print_png(content, metadata={"Software": None})
            case other:
                raise InvalidInput(f"{path} ends in {other!r}; figures are saved as svg, pdf or png")
        made.set_dpi(dpi)  # the other canvases leave their own
    write_bytes(path, content.getvalue())


class _PlainPowers(LogFormatterSciNotation):
    """10⁻³ as text. As a formula it looks the same, and parsing it takes a tenth of the time that a figure takes."""

    def __call__(self, x: Any, pos: Any = None) -> str:
        formula = super().__call__(x, pos)
        plain = re.sub(r"\^\{(.*?)\}", lambda power: superscript(power[1]), formula)
        return plain.replace(r"$\mathdefault{", "").replace("}$", "").replace(r"\times", "×")


def _write_powers_plainly(figure: Figure) -> None:
    for axes in [inner for outer in figure.axes for inner in (outer, *outer.child_axes)]:
        for axis in (axes.xaxis, axes.yaxis):
            for ticks in (axis.major, axis.minor):
                if type(ticks.formatter) is LogFormatterSciNotation:
                    plain = _PlainPowers(ticks.formatter._base, ticks.formatter.labelOnlyBase)  # pyright: ignore
                    plain.set_axis(axis)
                    ticks.formatter = plain
