"""Where a store is: the folder that was named, or the one of the environment."""

import os
from pathlib import Path

from .errors import InvalidInput

VARIABLE = "STEPWELL_STORE"
DEFAULT = "stepwell-runs"
OFF = "off"
"""What stands for no store, in the variable as in an argument; a folder of this name is `./off`."""


def store_path(given: str | os.PathLike | None) -> Path | None:
    """The folder of a store, by default that of the environment; None where it is off."""
    if isinstance(given, str) and not given.strip():
        raise InvalidInput(f"the store is {given!r}; name a folder (. is this one), or write {OFF} for no store")
    named = (os.environ.get(VARIABLE) or DEFAULT) if given is None else given
    return None if named == OFF else Path(named)
