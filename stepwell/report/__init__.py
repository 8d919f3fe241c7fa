"""Run figures, keep their data and claims, and write the report."""

from ._against import Movement as Movement
from ._against import moved as moved
from ._archive import damaged_figures as damaged_figures
from ._archive import remove_old_figures as remove_old_figures
from ._figure import Progress as Progress
from ._figure import freeze_imports as freeze_imports
from ._page import tallies as tallies
from ._reproduce import Reproduction as Reproduction
from ._reproduce import as_text as as_text
from ._reproduce import reproduce as reproduce
from ._text import as_setting as as_setting
from ._text import number as number
