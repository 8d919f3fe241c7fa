"""One look for all figures. No global state: a figure is a `matplotlib.figure.Figure`, and saving needs no screen."""

import os
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "stepwell",
    "pdf.fonttype": 42,
}
_FORMATS: dict[str, dict[str, Any]] = {
    "svg": {"metadata": {"Date": None, "Creator": None}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    "png": {"metadata": {"Software": None}, "dpi": 160},
}


def styled():
    """A context in which figures are made: `with styled(): …`."""
    return matplotlib.rc_context(_SETTINGS)  # pyright: ignore[reportArgumentType]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, sizes in inches."""
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def save_figure(made: Figure, path: str | os.PathLike) -> None:
    """Write a figure in the format that the name ends in; the same figure gives the same bytes."""
    ending = os.fspath(path).rpartition(".")[2]
    with styled():
        made.savefig(path, format=ending, **_FORMATS[ending])
