"""The published training script: its flags, data, starts, files and names, on this laboratory's engines.

Flags alone are imported here, so that a mistake in one is reported before anything that computes is loaded.
"""

from ._beyond import Beyond as Beyond
from ._beyond import is_white as is_white
from ._beyond import published_spectrum as published_spectrum
from ._beyond import resolve as resolve
from ._flags import SEVERAL as SEVERAL
from ._flags import Engine as Engine
from ._flags import Published as Published
from ._flags import add_published_flags as add_published_flags
from ._flags import check as check
from ._flags import engine_for as engine_for
from ._flags import flows as flows
from ._flags import infinite as infinite
from ._flags import keep_abbreviations as keep_abbreviations
from ._flags import warnings as warnings
from ._train_flags import Run as Run
from ._train_flags import add_train_flags as add_train_flags
from ._train_flags import is_whole as is_whole
from ._train_flags import run_in as run_in
from ._train_flags import run_of as run_of
from ._train_flags import tables_of as tables_of
