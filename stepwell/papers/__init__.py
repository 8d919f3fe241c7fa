"""The executable papers: each figure simulates, claims and draws. A figure is imported when it is run, not before."""

from ._claim import KINDS as KINDS
from ._claim import Claim as Claim
from ._claim import Known as Known
from ._completed import RunFailed as RunFailed
from ._completed import completed as completed
from ._own import GROUP as GROUP
from ._own import is_name as is_name
from ._protocol import FigureModule as FigureModule
from ._protocol import WithExtras as WithExtras
from ._registry import FIGURES as FIGURES
from ._registry import PAPERS as PAPERS
from ._registry import add_figure as add_figure
from ._registry import add_offered as add_offered
from ._registry import changed_figure as changed_figure
from ._registry import figure as figure
from ._registry import select as select
from ._settings import SeedWords as SeedWords
from ._settings import changeable as changeable
from ._settings import parsed_changes as parsed_changes
from ._settings import setting as setting
