"""What can be measured of each run of a study, beside its outcome and its losses. Nothing here imports JAX."""

from collections.abc import Sequence

from stepwell._util.errors import InvalidInput
from stepwell.experiments import Descent, Experiment, Flow, note_of

FINE = 1024  # steps up to which the loss of every one is measured; of longer runs that of as many, evenly spread
MEASURES = {
    "drops": "drop_1, drop_2, …: the time t/τ at which the loss is halfway from one level of the theory to the next",
    "predicted": "predicted_1, predicted_2, …: the same times, predicted from the initial weights; uncertainty_1, …: "
    "of 100 at least some 95 are off by less; withheld: why some have no prediction",
    "regime": "how the loss falls: monotone, catapult (it rises first), cycles (it never settles), diverged; and, for "
    "merged attention, the rates from which the theory has catapults and cycles",
    "map": "map_1, map_2, …: the effective map at the end along each eigenvector, times its eigenvalue",
    "allocation": "of several regressions, how many heads serve a task (heads_used), how many tasks share one, and "
    "whether any do (shared, 1 or 0)",
}
"""By name, with the scalars that they add."""

ALWAYS = ("outcome", "first_loss", "final_loss", "largest_loss")  # scalars that every run has

_ADDED = {
    "drops": ("drop_[0-9]+",),
    "predicted": ("predicted_[0-9]+", "uncertainty_[0-9]+", "withheld"),
    "regime": ("regime", "catapult_rate", "cycle_rate"),
    "map": ("map_[0-9]+",),
    "allocation": ("heads_used", "tasks_served", "tasks_sharing", "shared"),
}


def scalars_in(measure: Sequence[str]) -> list[str]:
    """Return the scalars that runs have with these measures.

    **Arguments:**

    - `measure`: names of measures, as `MEASURES` lists them.

    **Returns:** the names of scalars, as regular expressions.

    **Example:**

    >>> sw.sweeps.scalars_in(["drops"])
    ['outcome', 'first_loss', 'final_loss', 'largest_loss', 'drop_[0-9]+']
    """
    return [*ALWAYS, *(name for each in measure for name in _ADDED[each])]


def _has_map(experiment: Experiment) -> bool:
    """Whether the weights of a run on a mixture make a map, which needs no theory of the task."""
    task, model = experiment.task, experiment.model
    described = experiment.theory is not None and model.get("activation", "linear") == "linear"
    divided = experiment.normalization == "1/N" or isinstance(task.get("context"), int)
    return task.kind == "mixture" and described and task.get("outputs", 1) == 1 and divided


def check_measures(experiment: Experiment) -> None:
    training = experiment.build_training()
    several = note_of(experiment.model.kind, "reads") == "spectra"
    timed = isinstance(training, Flow) or (isinstance(training, Descent) and training.plain)
    reason = "" if several else experiment.no_theory()
    alone = several and experiment.model.heads < len(experiment.task.dims)
    theory = f"runs that the theory describes ({reason})"
    levels = not reason or (experiment.objective.kind == "features" and experiment.model.get("degree", 1) == 1)
    needs = {
        "drops": (levels and not alone, "as many heads as regressions at least" if alone else theory),
        "predicted": (not reason and not several, "one regression" if several else theory),
        "map": (
            _has_map(experiment) or not (reason or several or experiment.theory == "units"),
            "one regression" if several or not reason else theory,
        ),
        "regime": (isinstance(training, Descent) and training.steps <= FINE, f"descent of up to {FINE} steps"),
        "allocation": (several, "several regressions (the model spectral)"),
    }
    for name in experiment.record.measure:
        fits, wanted = needs[name]
        if name in ("drops", "predicted") and not timed:
            fits, wanted = False, "gradient flow and plain gradient descent, whose time t/τ is known"
        if not fits:
            raise InvalidInput(f"measure {name} is for {wanted}; leave it out: outcome and losses are always measured")
