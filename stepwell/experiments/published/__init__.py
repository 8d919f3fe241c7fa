"""The published training script: its flags as an `Experiment` and back, and the names of its files.

`python train.py …` is its door. Nothing that computes is imported here, so that a mistake in a flag is reported at
once.
"""

from typing import TYPE_CHECKING

from stepwell._util.lazy import lazy_names as _lazy_names

from ._experiment import experiment_of as experiment_of
from ._experiment import experiment_of_command as experiment_of_command
from ._experiment import published_flags as published_flags
from ._flags import Published as Published
from ._flags import add_published_flags as add_published_flags
from ._flags import check as check
from ._flags import keep_abbreviations as keep_abbreviations
from ._flags import warnings as warnings

if TYPE_CHECKING:
    from ._names import PublishedNames as PublishedNames

__getattr__, _ = _lazy_names(__name__, __file__)
