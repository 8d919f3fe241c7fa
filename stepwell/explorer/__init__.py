"""The explorer: a page in the browser on which a run is recomputed while a slider moves.

Controls and states are plain data; what computes is imported when a view is asked for.
"""

from ._controls import PRESETS as PRESETS
from ._controls import Control as Control
from ._controls import controls as controls
from ._explore import explore as explore
from ._state import State as State
from ._state import query_all as query_all
from ._state import read_all as read_all
