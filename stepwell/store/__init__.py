"""Runs that last: shards of many runs, a store that finds them again, and single runs in it.

Nothing that computes is imported here: a store is read without JAX.
"""

from typing import TYPE_CHECKING

from stepwell._util.lazy import lazy_names as _lazy_names

from ._export import FORMATS as FORMATS
from ._export import export as export
from ._shard import Shard as Shard
from ._store import Store as Store
from ._values import Column as Column

if TYPE_CHECKING:
    from ._single_run import load_run as load_run
    from ._single_run import save_run as save_run

__getattr__, __dir__ = _lazy_names(__name__, __file__)
