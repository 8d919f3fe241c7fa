"""Runs of an experiment at several seeds, each with its own covariance, sequences and initial weights."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import xarray as xr

from stepwell.dynamics import Ensemble, descend
from stepwell.experiments import Experiment


class Run(NamedTuple):
    """An experiment with one seed, and the objects that it describes."""

    experiment: Experiment
    task: Any
    model: Any
    objective: Any


def runs_of(experiment: Experiment, seeds: Iterable[int]) -> list[Run]:
    """What is trained at each seed."""
    members = [experiment.replace(seed=seed) for seed in seeds]
    return [Run(member, *member.build()) for member in members]


def train_together(runs: Sequence[Run], **options: Any) -> xr.Dataset:
    """Gradient descent of all as one program. `options` are those of `descend`, beside the rate and the steps."""
    training = runs[0].experiment.training
    rule = {} if "optimizer" in options else {"rate": training.rate}
    trajectory = descend(
        Ensemble.of([run.model for run in runs]),
        Ensemble.of([run.objective for run in runs]),
        steps=training.steps,
        progress=False,
        configuration={"experiment": runs[0].experiment.to_dict()},
        **rule,
        **options,
    )
    return trajectory.assign_coords(run=[run.experiment.seed for run in runs])
