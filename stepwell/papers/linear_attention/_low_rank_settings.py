"""Separate attention of low rank, as published in Figs 4 and 12: the task and the start, and what a quick run has less
of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from stepwell.dynamics import time_factor, weight_factor
from stepwell.models import SeparateAttention
from stepwell.papers._settings import changeable, setting
from stepwell.tasks import InContextRegression, covariance

DIM = 8
CONTEXT = setting("context", 31)
HEADS = setting("heads", 9)
INIT = setting("init", 5e-3)
"""What the published command calls `--init`: the standard deviation of the values, where attention is not divided by
N."""
RATE = setting("rate", 0.02)
STEPS = setting("steps", 20_000)
"""The published 20 001 losses have so many steps between them."""
WEIGHTS = weight_factor("none", "1/N", length=CONTEXT, factors=SeparateAttention.factors)
"""What a weight of the published script is in the paper's convention, attention divided by N."""
STEP = 2 * RATE * time_factor("none", "1/N", length=CONTEXT, factors=SeparateAttention.factors)
"""The time t/τ of a published step, in the paper's convention."""
LANES = 8
"""Runs of one program: as many as a vector of the widest processors holds."""


@changeable
@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    seeds: int = 24
    first_seed: int = 200
    """Settings and thresholds were chosen on seeds 1000 to 1023."""
    shown: int = 6
    """So many seeds are trained by descent, as published, and drawn."""
    decades: tuple[int, ...] = (1, 2, 3)
    """Of one rank, runs also start from init/10, init/100, …"""
    draws: int = 300
    """Random starts of which the waits are predicted."""

    def every_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)


FULL = Settings()
QUICK = Settings(seeds=4, shown=1, decades=(2,), draws=60)

START = f"init {INIT:g}: values with that standard deviation, keys and queries with init/√(R(D+1))"
PAPER_SETTINGS: dict[str, Any] = {
    "dimension D": DIM,
    "context length N": CONTEXT,
    "heads H": HEADS,
    "eigenvalues of the covariance": "in proportion 1, 1/2, …, 1/8, trace 1",
    "initial weights": f"{START} (the rule is inferred from the date of the published commands)",
    "data": "80,000 sequences",
    "training": f"{STEPS + 1:,} recorded losses, rate {RATE:g}, attention not divided by N",
    "seeds": 6,
}


def task(*, context: int = CONTEXT) -> InContextRegression:
    """Variances in proportion 1/d, trace 1. The start is isotropic, so the axes may be the eigenvectors."""
    spectrum = 1 / np.arange(1, DIM + 1)
    return InContextRegression(covariance(spectrum / spectrum.sum()), context)


def starts(rank: int, seeds: Sequence[int], *, decade: int = 0) -> list[SeparateAttention]:
    """One model for each seed, in the paper's convention; at a `decade` the same draw, smaller by powers of ten."""
    scale = WEIGHTS * INIT / 10**decade
    return [
        SeparateAttention.random(
            dim=DIM, heads=HEADS, rank=rank, scale=scale, start="per-head", key=jax.random.key(seed)
        )
        for seed in seeds
    ]
