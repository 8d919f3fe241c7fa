"""Pictures and films of any run, in the style of the figures. No screen is needed, and `pyplot` is not used."""

from ._animate import animate as animate
from ._map import draw_map as draw_map
from ._staircase import draw_staircase as draw_staircase
from ._weights import draw_weights as draw_weights
