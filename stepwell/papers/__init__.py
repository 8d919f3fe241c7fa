"""The executable papers: each figure simulates, claims and draws. A figure is imported when it is run, not before."""

from ._claim import Claim as Claim
from ._mould import FigureModule as FigureModule
from ._mould import WithExtras as WithExtras
from ._register import FIGURES as FIGURES
from ._register import PAPERS as PAPERS
from ._register import figure as figure
from ._register import select as select
