"""Flags that several verbs share: that of the store, and those of the published script, with what to write instead."""

import argparse
from typing import TYPE_CHECKING, Any

from stepwell._util.store_path import store_path
from stepwell.experiments import Experiment
from stepwell.experiments.published import Published

if TYPE_CHECKING:
    from stepwell.store import Store

_RENAMED = {
    "--epochs": "--training descent --steps",
    "--learning_rate": "--training descent --rate",
    "--white_cov": "--spectrum white",
    "--vary_len": "--context with several lengths",
    "--seq_len": "--context, which does not count the query and is one less",
    "--softmax": "--activation softmax",
    "--KQ_dim": "--rank",
    "--track_value": "--value-weights",
}


def renamed() -> dict[str, str]:
    """Flags of the published script, and others that one may expect, in the words of `stepwell train`."""
    usual, made = Experiment(), dict(_RENAMED)
    for name, (section, kind, field) in Published.fields_set().items():
        choice = "" if getattr(usual, section).kind == kind else f"--{section} {kind} "
        made[f"--{name}"] = f"{choice}--{field.replace('_', '-')}"
    return made


def add_store_flag(group: Any, what: str) -> None:
    """Declare `--store`; `what` is kept there."""
    group.add_argument(
        "--store",
        metavar="DIR",
        help=f"where {what} are kept and found again (off: nowhere; default: $STEPWELL_STORE, or stepwell-runs)",
    )


def chosen_store(arguments: argparse.Namespace) -> "Store | None":
    """The store; None where that is switched off."""
    if store_path(arguments.store) is None:  # the room of stores is not imported then
        return None
    from stepwell.store import Store

    return Store(arguments.store)
