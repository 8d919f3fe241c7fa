"""One training run by the published flags, from its set-up to its files. This imports JAX; the flags do not."""

from ._files import write_plot as write_plot
from ._files import write_tables as write_tables
from ._files import write_trajectory as write_trajectory
from ._names import FORMATS as FORMATS
from ._names import Place as Place
from ._names import choose_place as choose_place
from ._names import find_stored as find_stored
from ._plot import draw as draw
from ._run import checkpoint_of as checkpoint_of
from ._run import converged_setup as converged_setup
from ._run import last_step as last_step
from ._run import stored_run as stored_run
from ._run import train as train
from ._setup import IN_CONTEXT as IN_CONTEXT
from ._setup import IN_WEIGHT as IN_WEIGHT
from ._setup import TRACKED as TRACKED
from ._setup import Setup as Setup
from ._setup import set_up as set_up
from ._theory import Course as Course
from ._theory import Levels as Levels
from ._theory import comparison_of as comparison_of
from ._theory import course_of as course_of
from ._theory import levels_of as levels_of
from ._theory import paper_time as paper_time
