"""Fig 1: its settings, and what the runs of one seed share."""

from dataclasses import dataclass
from typing import NamedTuple

from stepwell.models import MergedAttention
from stepwell.tasks import Batch, InContextRegression

NAME = "linear/fig1"

DIM = 4
CONTEXT = 31
HEADS = 8
INIT = 1e-6
"""Standard deviation of the initial weights in the published convention (no 1/N)."""

POPULATION_TIME = 1000.0
"""Flow time of the population run: long enough for the slowest direction to come to rest (see `predict`)."""
STANDARD_ERRORS = 3.0
"""Deviations due to sampling may be so many standard errors."""
ROUNDING = 1e-10
"""Two routes to one number in float64, after thousands of steps."""


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of. `rate` is the published script's, on the loss without 1/N."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    sequences: int = 5000
    rate: float = 1e-3
    steps: int = 6000
    record: int = 10
    population_runs: int = 3
    """Of so many seeds the population is run too: there the seed sets nothing but the start."""


PUBLISHED = Settings()
QUICK = Settings(seeds=(0, 1, 2), sequences=2000, rate=2e-3, steps=3000, record=5, population_runs=1)


class Start(NamedTuple):
    """What the runs of one seed share."""

    task: InContextRegression
    batch: Batch
    model: MergedAttention
