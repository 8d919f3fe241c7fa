"""One look for all figures. No global state: a figure is a `matplotlib.figure.Figure`, and saving needs no screen."""

import os
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from stepwell._errors import InvalidInput

BLACK = "#000000"
GREY = "#767676"
BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
ORANGE = "#E69F00"
SKY = "#56B4E9"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Okabe and Ito's colours, told apart by the colour-blind."""

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "text.usetex": False,
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
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
    """A context in which figures are made: `with styled(): …`."""
    return matplotlib.rc_context(_SETTINGS)  # pyright: ignore[reportArgumentType]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, sizes in inches."""
    made = Figure(figsize=(width, height), layout="constrained", dpi=_RESOLUTION)
    FigureCanvasAgg(made)
    return made


def save_figure(made: Figure, path: str | os.PathLike) -> None:
    """Write a figure in the format that the name ends in; the same figure gives the same bytes.

    The layout is found once, and the canvases are called by themselves: `savefig` would find it again for each format
    and draw everything twice.
    """
    dpi = made.get_dpi()
    with styled():
        layout = made.get_layout_engine()
        if layout is not None:
            layout.execute(made)
            made.set_layout_engine("none")
        match os.fspath(path).rpartition(".")[2]:
            case "svg":
                FigureCanvasSVG(made).print_svg(path, metadata={"Date": None, "Creator": None})
            case "pdf":
                nameless = {"CreationDate": None, "Creator": None, "Producer": None}
                FigureCanvasPdf(made).print_pdf(path, metadata=nameless)
            case "png":
                FigureCanvasAgg(made).print_png(path, metadata={"Software": None})
            case other:
                raise InvalidInput(f"{path} ends in {other!r}; figures are saved as svg, pdf or png")
        made.set_dpi(dpi)  # the other canvases leave their own
