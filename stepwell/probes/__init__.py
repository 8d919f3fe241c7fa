"""What is read off a run: for now, plateaus and drops of a loss curve."""

from ._staircase import Drop as Drop
from ._staircase import Plateau as Plateau
from ._staircase import Staircase as Staircase
from ._staircase import passage_time as passage_time
from ._staircase import staircase as staircase
