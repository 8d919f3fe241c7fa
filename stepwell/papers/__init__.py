"""The executable papers: each figure simulates, claims and draws. A figure is imported when it is run, not before."""

from stepwell._errors import InvalidInput as InvalidInput
from stepwell._threads import one_blas_thread as one_blas_thread

from ._claim import KINDS as KINDS
from ._claim import Claim as Claim
from ._claim import Known as Known
from ._claim import Origin as Origin
from ._claim import slug as slug
from ._completed import RunFailed as RunFailed
from ._completed import completed as completed
from ._figure import Data as Data
from ._figure import Figure as Figure
from ._own import GROUP as GROUP
from ._own import is_name as is_name
from ._registry import FIGURES as FIGURES
from ._registry import PAPERS as PAPERS
from ._registry import add_figure as add_figure
from ._registry import add_offered as add_offered
from ._registry import figure as figure
from ._registry import select as select
from ._settings import SeedWords as SeedWords
from ._settings import parsed_changes as parsed_changes
