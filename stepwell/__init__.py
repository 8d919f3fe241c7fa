"""Stepwell: how attention acquires in-context learning while it trains.

Rooms, in the order data passes through them: `tasks`, `models`, `objectives`, `dynamics`, `trajectory`, and beside
them `theory`, which predicts from the task alone. Importing `stepwell` is cheap; a room is imported on first use.
The names that one needs most are here too: `stepwell.flow` is `stepwell.dynamics.flow`.

JAX is set up here, once, before it makes its first array: all arithmetic is float64.
"""

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from ._util import cache, compiler

if TYPE_CHECKING:
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

_ROOMS = (
    "native",
    "tasks",
    "models",
    "objectives",
    "dynamics",
    "trajectory",
    "theory",
    "analysis",
    "experiments",
    "store",
    "sweeps",
    "figures",
    "papers",
)

_NAMES = {
    "Experiment": "experiments",
    "InContextRegression": "tasks",
    "MultiTaskRegression": "tasks",
    "covariance": "tasks",
    "MergedAttention": "models",
    "SeparateAttention": "models",
    "MultiHeadAttention": "models",
    "Population": "objectives",
    "Moments": "objectives",
    "Sampled": "objectives",
    "Ensemble": "dynamics",
    "Record": "dynamics",
    "RunFailed": "dynamics",
    "Interrupted": "dynamics",
    "descend": "dynamics",
    "flow": "dynamics",
    "online": "dynamics",
    "levels": "theory.linear",
    "drop_schedule": "theory.linear",
    "compare": "analysis",
    "effective_map": "analysis",
    "draw_staircase": "analysis",
    "draw_weights": "analysis",
    "draw_map": "analysis",
    "animate": "analysis",
    "save": "trajectory",
    "load": "trajectory",
    "rerun": "experiments.recorded",
    "sweep": "sweeps",
}
"""What one needs most, and the room that has it."""

__all__ = [*_NAMES, *_ROOMS]  # pyright: ignore[reportUnsupportedDunderAll]

_SETTINGS = {
    "jax_enable_x64": True,
    # A call returns when its result is there. Everything here waits for results anyway, and a small one, such as the
    # gradients a stiff solver asks for one by one, comes back three times sooner.
    "jax_cpu_enable_async_dispatch": False,
}
_CACHE = cache.cache()
_KEEP_COMPILED = {
    "jax_compilation_cache_dir": _CACHE.folder,
    # Most programs here are small and many: reading one back is ten times faster than compiling it.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
}


def _set_up_jax(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if "jax" in sys.modules:
            sys.modules["jax"].config.update(name, value)
        else:
            # Read by JAX when it is first imported, so that `stepwell --help` does not have to import it.
            os.environ.setdefault(name.upper(), str(value).lower() if isinstance(value, bool) else str(value))


_set_up_jax(_SETTINGS)
compiler.compile_quickly()
if _CACHE.unsafe:
    warnings.warn(_CACHE.reason, RuntimeWarning, stacklevel=2)
_chosen = (
    sys.modules["jax"].config.jax_compilation_cache_dir
    if "jax" in sys.modules
    else os.environ.get("JAX_COMPILATION_CACHE_DIR")  # the user's, or ours from the process that started this one
)
if _CACHE.folder is not None and _chosen in (None, "", _CACHE.folder):
    _set_up_jax(_KEEP_COMPILED)
    # A program that another process is just writing, or left half-written, is compiled anew: nothing to warn of.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")


def __getattr__(name: str):
    if name in _ROOMS:
        return importlib.import_module(f"stepwell.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"stepwell.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}; its rooms are {', '.join(_ROOMS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES, *_ROOMS])
