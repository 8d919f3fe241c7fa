"""Training runs of the published script, many seeds of one command as one program.

What is trained is set up by the code behind `stepwell train`: the same data, starts and keys from the same flags. A
seed then has its own covariance, sequences and initial weights, as in the published runs.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

import xarray as xr

from stepwell.dynamics import Ensemble, descend
from stepwell.objectives import AbstractObjective, Moments
from stepwell.papers._completed import completed
from stepwell.published import Published, add_published_flags
from stepwell.published.training import Setup, set_up


def set_up_seeds(command: str, seeds: Iterable[int]) -> list[Setup]:
    """What `python train.py COMMAND --seed S` trains, for each seed."""
    parser = argparse.ArgumentParser()
    add_published_flags(parser)
    words = command.split()
    return [set_up(Published.of(parser.parse_args([*words, "--seed", str(seed)])), "moments") for seed in seeds]


def training_moments(setup: Setup) -> Moments:
    """The training loss, from the moments of the sequences that the published flags describe."""
    return Moments.of_task(
        setup.task,
        setup.flags.trainset_size,
        normalisation=setup.normalisation,
        progress=False,
        key=setup.keys.train,
    )


def train_seeds(
    setups: Sequence[Setup],
    losses: Sequence[AbstractObjective],
    *,
    steps: int,
    configuration: dict[str, Any],
    **options: Any,
) -> xr.Dataset:
    """Gradient descent of all as one program. `options` are those of `descend`; the rate is that of the flags."""
    rule = {} if "optimiser" in options else {"rate": setups[0].flags.lr}
    trajectory = descend(
        Ensemble.of([setup.model for setup in setups]),
        Ensemble.of(list(losses)),
        steps=steps,
        progress=False,
        configuration=configuration,
        **rule,
        **options,
    )
    return completed(trajectory).assign_coords(run=[setup.flags.seed for setup in setups])
