"""Figures of papers as values: `Figure` and `Claim`, the figures that are listed, running them, and the report."""

from stepwell._util.errors import InvalidInput as InvalidInput
from stepwell._util.threads import one_blas_thread as one_blas_thread

from ._archive import damaged_figures as damaged_figures
from ._archive import remove_old_figures as remove_old_figures
from ._claim import KINDS as KINDS
from ._claim import Claim as Claim
from ._claim import Known as Known
from ._claim import Origin as Origin
from ._claim import Value as Value
from ._claim import slug as slug
from ._coverage import Statement as Statement
from ._coverage import Statements as Statements
from ._coverage import coverage as coverage
from ._coverage import statements as statements
from ._figure import Data as Data
from ._figure import Figure as Figure
from ._figure import Seeds as Seeds
from ._figure import SeedWords as SeedWords
from ._page import tallies as tallies
from ._registry import FIGURES as FIGURES
from ._registry import GROUP as GROUP
from ._registry import PAPERS as PAPERS
from ._registry import add_figure as add_figure
from ._registry import add_offered as add_offered
from ._registry import figure as figure
from ._registry import select as select
from ._reproduce import Reproduction as Reproduction
from ._reproduce import reproduce as reproduce
from ._run import Progress as Progress
from ._words import as_setting as as_setting
from ._words import expected as expected
from ._words import number as number
