"""The style of every figure: colors, fonts, how numbers are written, and how a figure is made and saved."""

from stepwell._util.text import scientific as scientific
from stepwell._util.text import superscript as superscript

from ._draw import set_points as set_points
from ._style import BLACK as BLACK
from ._style import BLUE as BLUE
from ._style import GRAY as GRAY
from ._style import GREEN as GREEN
from ._style import ORANGE as ORANGE
from ._style import PALETTE as PALETTE
from ._style import PURPLE as PURPLE
from ._style import SKY as SKY
from ._style import VERMILION as VERMILION
from ._style import new_figure as new_figure
from ._style import save_figure as save_figure
from ._style import styled as styled
