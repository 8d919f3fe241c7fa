"""Stepwell: how attention acquires in-context learning while it trains.

Rooms, in the order data passes through them: `tasks`, `models`, `objectives`, `dynamics`, `trajectory`, and beside
them `theory`, which predicts from the task alone. Importing `stepwell` is cheap; a room is imported on first use.

JAX is set up here, once, before it makes its first array: all arithmetic is float64.
"""

import importlib
import os
import sys
import warnings
from typing import Any

from . import _cache, _compiler

__version__ = "0.1.0"

_ROOMS = (
    "native",
    "tasks",
    "models",
    "objectives",
    "dynamics",
    "trajectory",
    "theory",
    "probes",
    "plots",
    "replay",
    "published",
    "papers",
    "report",
)

_SETTINGS = {
    "jax_enable_x64": True,
    # A call returns when its result is there. Everything here waits for results anyway, and a small one, such as the
    # gradients a stiff solver asks for one by one, comes back three times sooner.
    "jax_cpu_enable_async_dispatch": False,
}
_CACHE = _cache.cache()
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
_compiler.compile_quickly()
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
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}; its rooms are {', '.join(_ROOMS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
