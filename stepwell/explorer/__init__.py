"""The explorer: a page in the browser on which a run is recomputed while a slider moves.

Controls and states are plain data; what computes is imported when a view is asked for.
"""

from ._explore import explore as explore
