"""Runs that last: shards of many runs, a store that finds them again, and single runs in it.

Nothing that computes is imported here: a store is read without JAX.
"""

from typing import TYPE_CHECKING, Any

from ._export import FORMATS as FORMATS
from ._export import export as export
from ._shard import Shard as Shard
from ._store import OFF as OFF
from ._store import VARIABLE as VARIABLE
from ._store import Store as Store
from ._values import Column as Column

if TYPE_CHECKING:
    from ._single_run import load_run as load_run
    from ._single_run import save_run as save_run

_LATER = {
    "load_run": "_single_run",
    "save_run": "_single_run",
}
"""Names whose modules take a while to import, and the module of each."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
