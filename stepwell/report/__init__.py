"""Run figures, keep their data and claims, and write the report."""

from ._figure import freeze_imports as freeze_imports
from ._page import number as number
from ._reproduce import Reproduction as Reproduction
from ._reproduce import as_text as as_text
from ._reproduce import reproduce as reproduce
