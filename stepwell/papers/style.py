"""How a figure is drawn and saved. This imports matplotlib; the list of figures does not."""

from stepwell._text import scientific as scientific
from stepwell._text import superscript as superscript
from stepwell.plots.style import BLACK as BLACK
from stepwell.plots.style import BLUE as BLUE
from stepwell.plots.style import GREEN as GREEN
from stepwell.plots.style import GREY as GREY
from stepwell.plots.style import ORANGE as ORANGE
from stepwell.plots.style import PALETTE as PALETTE
from stepwell.plots.style import PURPLE as PURPLE
from stepwell.plots.style import SKY as SKY
from stepwell.plots.style import VERMILION as VERMILION
from stepwell.plots.style import new_figure as new_figure
from stepwell.plots.style import save_figure as save_figure
from stepwell.plots.style import styled as styled
