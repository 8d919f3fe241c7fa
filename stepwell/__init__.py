"""Stepwell: how attention acquires in-context learning while it trains.

Rooms, in the order data passes through them: `tasks`, `models`, `objectives`, `dynamics`, `trajectory`, and beside
them `theory`, which predicts from the task alone. Importing `stepwell` is cheap; a room is imported on first use.

JAX is set up here, once, before it makes its first array: all arithmetic is float64.
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

for _name, _value in _SETTINGS.items():
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(_name, _value)
    else:
        # Read by JAX when it is first imported, so that `stepwell --help` does not have to import it.
        os.environ.setdefault(_name.upper(), str(_value).lower())


def __getattr__(name: str):
    if name in _ROOMS:
        return importlib.import_module(f"stepwell.{name}")
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}; its rooms are {', '.join(_ROOMS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
