"""Stepwell: how attention acquires in-context learning while it trains.

Rooms, in the order data passes through them: `tasks`, `models`, `objectives`, `dynamics`, `trajectory`, and beside
them `theory`, which predicts from the task alone. Importing `stepwell` is cheap; a room is imported on first use.
The names that one needs most are here too: `stepwell.flow` is `stepwell.dynamics.flow`.

Importing `stepwell` sets JAX to float64 and changes nothing else in the process; `configure` does more.

Examples in docstrings assume these imports:

>>> import jax
>>> import jax.numpy as jnp
>>> import numpy as np
>>> import stepwell as sw
"""

import os
import sys
from typing import TYPE_CHECKING

from ._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from . import analysis as analysis
    from . import dynamics as dynamics
    from . import experiments as experiments
    from . import figures as figures
    from . import models as models
    from . import native as native
    from . import objectives as objectives
    from . import papers as papers
    from . import store as store
    from . import sweeps as sweeps
    from . import tasks as tasks
    from . import theory as theory
    from . import trajectory as trajectory
    from ._util.process import configure as configure
    from .analysis import animate as animate
    from .analysis import compare as compare
    from .analysis import draw_map as draw_map
    from .analysis import draw_staircase as draw_staircase
    from .analysis import draw_weights as draw_weights
    from .analysis import effective_map as effective_map
    from .dynamics import Ensemble as Ensemble
    from .dynamics import Interrupted as Interrupted
    from .dynamics import Record as Record
    from .dynamics import RunFailed as RunFailed
    from .dynamics import descend as descend
    from .dynamics import flow as flow
    from .dynamics import online as online
    from .experiments import Experiment as Experiment
    from .experiments.recorded import rerun as rerun
    from .models import MergedAttention as MergedAttention
    from .models import MultiHeadAttention as MultiHeadAttention
    from .models import SeparateAttention as SeparateAttention
    from .objectives import Moments as Moments
    from .objectives import Population as Population
    from .objectives import Sampled as Sampled
    from .sweeps import sweep as sweep
    from .tasks import InContextRegression as InContextRegression
    from .tasks import MultiTaskRegression as MultiTaskRegression
    from .tasks import covariance as covariance
    from .theory.linear import drop_schedule as drop_schedule
    from .theory.linear import levels as levels
    from .trajectory import load as load
    from .trajectory import save as save

__version__ = "0.1.0"

__getattr__, __dir__ = _lazy_names(__name__, __file__)
__all__ = __dir__()  # pyright: ignore[reportUnsupportedDunderAll]

if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)
else:  # JAX reads this when it is imported, which help and messages of the command line do without
    os.environ.setdefault("JAX_ENABLE_X64", "true")
