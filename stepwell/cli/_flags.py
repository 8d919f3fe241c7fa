"""Flags that several verbs share: that of the store, and those of the published script, with what to write instead."""

import argparse
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.store import Store

RENAMED = {
    "--epoch": "--training descent --steps",
    "--lr": "--training descent --rate",
    "--icl": "--task mixture --in-context",
    "--trainset_size": "--objective moments --sequences",
    "--testset_size": "--test-sequences",
    "--white_cov": "--spectrum white",
    "--vary_len": "--context with several lengths",
    "--seq_len": "--context, which does not count the query and is one less",
    "--in_dim": "--dim",
    "--out_dim": "--outputs",
    "--softmax": "--activation softmax",
    "--KQ_dim": "--rank",
    "--head_num": "--heads",
    "--init": "--scale",
    "--track_value": "--value-weights",
}
"""Flags of the published script in the words of `stepwell train`."""


def add_store_flag(group: Any, what: str) -> None:
    """Declare `--store`; `what` is kept there."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help=f"where {what} are kept and found again (off: nowhere; default: $STEPWELL_STORE, or stepwell-runs)",
    )


def chosen_store(arguments: argparse.Namespace) -> "Store | None":
    """The store; None where that is switched off."""
    named = arguments.store
    if (named or os.environ.get("STEPWELL_STORE")) == "off":  # `VARIABLE` and `OFF` of a room not imported then
        return None
    from stepwell.store import Store

    return Store(named)
