"""A run described by settings: `Experiment`, the registry of kinds, and what can be done with one.

Nothing that computes is imported here: an experiment is read, checked and named without JAX.
"""

from typing import TYPE_CHECKING

from stepwell._util.errors import InvalidInput as InvalidInput
from stepwell._util.lazy import lazy_names as _lazy_names

from ._experiment import SEED as SEED
from ._experiment import Built as Built
from ._experiment import Experiment as Experiment
from ._field import DeclaredField as DeclaredField
from ._field import Field as Field
from ._flags import add_experiment_flags as add_experiment_flags
from ._flags import experiment_from as experiment_from
from ._flags import full_name as full_name
from ._flags import seeds_of as seeds_of
from ._keys import Keys as Keys
from ._kind import SECTIONS as SECTIONS
from ._kind import Kind as Kind
from ._kind import find_kind as find_kind
from ._kind import kinds as kinds
from ._kind import note_of as note_of
from ._kind import register as register
from ._kind import registrations as registrations
from ._plugins import LOADED as LOADED
from ._plugins import load_kinds as load_kinds
from ._schema import json_schema as json_schema

if TYPE_CHECKING:
    from . import published as published
    from . import recorded as recorded
    from ._predict_linear import sample_of as sample_of
    from ._predict_linear import theory_task as theory_task
    from ._prediction import Course as Course
    from ._prediction import Level as Level
    from ._prediction import Prediction as Prediction
    from ._prediction import compare_run as compare_run
    from ._together import Together as Together
    from ._together import build_together as build_together
    from ._training import AbstractTraining as AbstractTraining
    from ._training import Descent as Descent
    from ._training import Flow as Flow
    from ._training import Online as Online
    from ._training import TimeScale as TimeScale

__getattr__, __dir__ = _lazy_names(__name__, __file__)
