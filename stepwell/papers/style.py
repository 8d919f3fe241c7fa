"""How a figure is drawn and saved. This imports matplotlib; the list of figures does not."""

from ._style import BLACK as BLACK
from ._style import GREY as GREY
from ._style import PALETTE as PALETTE
from ._style import new_figure as new_figure
from ._style import save_figure as save_figure
from ._style import styled as styled
