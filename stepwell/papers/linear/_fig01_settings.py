"""Fig 1: its settings."""

from dataclasses import dataclass

from stepwell.experiments import Experiment

DIM = 4
STANDARD_ERRORS = 3.0
"""Deviations due to sampling may be so many standard errors."""
ROUNDING = 1e-10
"""Two routes to one number in float64, after thousands of steps."""
WHITE_SOLVER = 1e-8
"""Error of the flow that eq. 10 is compared with: its relative tolerance, 1e-10, at each of up to a hundred steps."""


@dataclass(frozen=True)
class Settings:
    """What can be changed. Seeds 0 to 23 were used while the figure was made; those here judge it."""

    context: int = 31
    heads: int = 8
    init: float = 1e-6
    """Standard deviation of the initial weights in the published convention (no 1/N)."""
    steps: int = 6000
    rate: float = 1e-3
    sequences: int = 5000
    population_time: float = 1000.0
    """Flow time of the population run: long enough for the slowest direction to come to rest (see `predict`)."""
    seeds: tuple[int, ...] = tuple(range(100, 124))
    record: int = 10
    held_runs: int = 3
    """Of so many seeds a run with label blocks held at zero is made as well."""
    population_runs: int = 3
    """Of so many seeds the population is run too: there the seed sets nothing but the start."""
    white_sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4)
    """Standard deviations of the initial weights, with 1/N, in the comparison with eq. 10."""
    white_runs: int = 8

    @property
    def experiment(self) -> Experiment:
        """What the command of the published README trains: `python train.py --model attnM --head 8 --init 1e-6`."""
        return Experiment(
            task={"dim": DIM, "context": self.context, "centered": True, "whitened": True},
            model={"kind": "merged", "heads": self.heads, "scale": self.init, "normalization": "none"},
            objective={"kind": "moments", "sequences": self.sequences},
            training={"kind": "descent", "rate": self.rate, "steps": self.steps},
        )
