"""A run described by settings: `Experiment`, the registry of kinds, and what can be done with one.

Nothing that computes is imported here: an experiment is read, checked and named without JAX.
"""

from typing import TYPE_CHECKING

from stepwell._util.errors import InvalidInput as InvalidInput
from stepwell._util.lazy import lazy_names as _lazy_names

from ._build import Keys as Keys
from ._build import keys_of as keys_of
from ._experiment import NUMERICS as NUMERICS
from ._experiment import SEED as SEED
from ._experiment import Built as Built
from ._experiment import Experiment as Experiment
from ._experiment import Section as Section
from ._experiment import canonical_text as canonical_text
from ._experiment import name_of as name_of
from ._experiment import sections_of as sections_of
from ._field import DeclaredField as DeclaredField
from ._field import Field as Field
from ._flags import add_experiment_flags as add_experiment_flags
from ._flags import command_of as command_of
from ._flags import experiment_from as experiment_from
from ._flags import full_name as full_name
from ._flags import seeds_from as seeds_from
from ._flags import seeds_of as seeds_of
from ._kind import ENTRY_POINTS as ENTRY_POINTS
from ._kind import SECTIONS as SECTIONS
from ._kind import Kind as Kind
from ._kind import find_kind as find_kind
from ._kind import kinds as kinds
from ._kind import note_of as note_of
from ._kind import register as register
from ._kind import registrations as registrations
from ._kinds._tasks import eigenvalues_by_name as eigenvalues_by_name
from ._plugins import LOADED as LOADED
from ._plugins import load_kinds as load_kinds
from ._toml import as_toml as as_toml
from ._toml import document_in as document_in
from ._toml import json_schema as json_schema
from ._training import TimeScale as TimeScale
from ._training import time_scale as time_scale

if TYPE_CHECKING:
    from . import published as published
    from . import recorded as recorded
    from ._build import IN_CONTEXT as IN_CONTEXT
    from ._build import IN_WEIGHT as IN_WEIGHT
    from ._build import VALUE_WEIGHTS as VALUE_WEIGHTS
    from ._build import build_model as build_model
    from ._build import build_objective as build_objective
    from ._build import build_task as build_task
    from ._build import normalization_of as normalization_of
    from ._course import Course as Course
    from ._course import compare_run as compare_run
    from ._course import predicted_course as predicted_course
    from ._course import predicted_levels as predicted_levels
    from ._experiment import training_of as training_of
    from ._files import AbstractNames as AbstractNames
    from ._files import Names as Names
    from ._files import Place as Place
    from ._files import Table as Table
    from ._files import find_previous as find_previous
    from ._files import held_by as held_by
    from ._files import run_name as run_name
    from ._files import stored_run as stored_run
    from ._memory import check_memory as check_memory
    from ._predict_linear import describe_linear as describe_linear
    from ._predict_linear import sample_of as sample_of
    from ._predict_linear import theory_task as theory_task
    from ._prediction import DropForecast as DropForecast
    from ._prediction import Level as Level
    from ._prediction import Prediction as Prediction
    from ._prediction import no_comparison as no_comparison
    from ._prediction import no_theory as no_theory
    from ._prediction import predict as predict
    from ._prediction import theory_name as theory_name
    from ._resume import last_step as last_step
    from ._resume import resume as resume
    from ._run import experiment_and_seeds as experiment_and_seeds
    from ._run import experiment_of as experiment_of
    from ._run import record_of as record_of
    from ._run import remarks as remarks
    from ._run import remembering as remembering
    from ._run import run as run
    from ._run import time_of as time_of
    from ._training import FINE as FINE
    from ._training import AbstractTraining as AbstractTraining
    from ._training import Descent as Descent
    from ._training import Flow as Flow
    from ._training import Online as Online
    from ._training import require_spacing as require_spacing

__getattr__, _ = _lazy_names(__name__, __file__)
