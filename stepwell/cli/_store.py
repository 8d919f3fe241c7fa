"""The flag that names the store, for the verbs that keep what they make there."""

import argparse
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.store import Store


def add_store_flag(group: Any, what: str) -> None:
    """Declare `--store`; `what` is kept there."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help=f"where {what} are kept and found again (default: $STEPWELL_STORE, which may be off, or stepwell-runs)",
    )


def chosen_store(arguments: argparse.Namespace) -> "Store | None":
    """The store; None where that is switched off."""
    named = arguments.store
    if named is None and os.environ.get("STEPWELL_STORE") == "off":  # `VARIABLE` and `OFF` of a room not imported then
        return None
    from stepwell.store import Store

    return Store(named)
