"""What can be measured of each run of a study, beside its outcome and its losses. Nothing here imports JAX."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepwell._errors import InvalidInput
from stepwell._kinds import KINDS
from stepwell.published import flows, infinite

MEASURES = {
    "drops": "drop_1, drop_2, …: the flow time at which the loss passes half-way from one level to the next",
    "predicted": "predicted_1, predicted_2, …: the same times, predicted from the initial weights",
    "regime": "how the loss falls: monotone, catapult (it rises first), cycles (it never settles), diverged; and, for "
    "merged attention, the rates from which the theory has catapults and cycles",
    "map": "map_1, map_2, …: the effective map at the end along each eigenvector, times its eigenvalue",
    "allocation": "of several regressions, how many heads serve a task (heads_used), how many tasks share one, and "
    "whether any do (shared, 1 or 0)",
}
"""By name, with the scalars that they add."""

ALWAYS = ("outcome", "first_loss", "final_loss", "largest_loss")
"""Scalars that every run has."""

_ADDED = {
    "drops": ("drop_[0-9]+",),
    "predicted": ("predicted_[0-9]+",),
    "regime": ("regime", "catapult_rate", "cycle_rate"),
    "map": ("map_[0-9]+",),
    "allocation": ("heads_used", "tasks_served", "tasks_sharing", "shared"),
}


def scalars_in(measure: Sequence[str]) -> list[str]:
    """The scalars that runs have with these measures.

    **Arguments:**

    - `measure`: names of measures, as `MEASURES` lists them.

    **Returns:** the names of scalars, as regular expressions.

    **Example:**

    >>> import stepwell as sw
    >>> sw.runs.scalars_in(["drops"])
    ['outcome', 'first_loss', 'final_loss', 'largest_loss', 'drop_[0-9]+']
    """
    return [*ALWAYS, *(name for each in measure for name in _ADDED[each])]


FINE = 1024
"""Steps up to which the loss of every one is measured; of longer runs that of as many, evenly spread."""


def is_closed_form(configuration: Mapping[str, Any]) -> bool:
    """Whether the loss is that of one regression over infinitely many sequences, whose moments are known."""
    return "dims" not in configuration and infinite(configuration["engine"]) and not configuration["vary_len"]


def check_measures(configuration: Mapping[str, Any], measure: Sequence[str]) -> None:
    """Raise `InvalidInput` where a measure does not apply to a run."""
    several, engine = "dims" in configuration, configuration["engine"]
    theory = None if several else KINDS[configuration["model"]].theory
    plain = configuration["optimiser"] == "sgd" and configuration["schedule"] == "constant"
    one = theory is not None and not configuration.get("softmax") and configuration.get("out_dim") == 1
    needs = {
        "drops": (several or (one and configuration["icl"] == 1 and not configuration["vary_len"]), "linear attention"),
        "predicted": (one and is_closed_form(configuration), "linear attention over infinitely many sequences"),
        "map": (one and is_closed_form(configuration), "linear attention over infinitely many sequences"),
        "regime": (not flows(engine) and configuration["epoch"] <= FINE, f"descent of up to {FINE} steps"),
        "allocation": (several, "several regressions (dims)"),
    }
    for name in measure:
        fits, wanted = needs[name]
        if name in ("drops", "predicted") and not plain:
            fits, wanted = False, "plain gradient descent, whose flow time is known"
        if not fits:
            raise InvalidInput(f"measure {name} is for {wanted}; leave it out")
