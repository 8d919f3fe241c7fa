"""How a figure is saved. This imports matplotlib; the list of figures does not."""

from ._style import save_figure as save_figure
