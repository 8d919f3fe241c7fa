"""What can be measured of each run of a study, beside its outcome and its losses. Nothing here imports JAX."""

MEASURES = {
    "drops": "drop_1, drop_2, …: the flow time at which the loss passes half-way from one level to the next",
    "predicted": "predicted_1, predicted_2, …: the same times, predicted from the initial weights",
    "regime": "how the loss falls: monotone, catapult (it rises first), cycles (it never settles), diverged; and, for "
    "merged attention, the rates from which the theory has catapults and cycles",
    "map": "map_1, map_2, …: the effective map at the end along each eigenvector, times its eigenvalue",
    "allocation": "of several regressions, how many heads serve a task (heads_used), and how many tasks share one",
}
"""By name, with the scalars that they add."""

ALWAYS = ("outcome", "first_loss", "final_loss", "largest_loss")
"""Scalars that every run has."""
