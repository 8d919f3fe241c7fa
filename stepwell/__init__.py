"""Stepwell: how attention acquires in-context learning while it trains.

Rooms, in the order data passes through them: `tasks`, `models`, `objectives`, `dynamics`, `trajectory`, and beside
them `theory`, which predicts from the task alone. Importing `stepwell` is cheap; a room is imported on first use.

All arithmetic is float64. The switch is thrown here, once, before JAX makes its first array.
"""

import importlib
import os
import sys

__version__ = "0.1.0"

_ROOMS = (
    "tasks",
    "models",
    "objectives",
    "dynamics",
    "trajectory",
    "theory",
    "probes",
    "replay",
    "papers",
    "report",
)

if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)
else:
    # Read by JAX when it is first imported, so that `stepwell --help` does not have to import it.
    os.environ.setdefault("JAX_ENABLE_X64", "true")


def __getattr__(name: str):
    if name in _ROOMS:
        return importlib.import_module(f"stepwell.{name}")
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}; its rooms are {', '.join(_ROOMS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
