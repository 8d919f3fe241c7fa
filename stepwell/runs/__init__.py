"""Runs that last: shards of many runs, a store that finds them, and its index."""

from ._column import Column as Column
from ._configuration import canonical_text as canonical_text
from ._configuration import run_name as run_name
from ._export import FORMATS as FORMATS
from ._export import export as export
from ._shard import Shard as Shard
from ._store import Store as Store
