"""Separate attention of low rank, as published in Figs 4 and 12: settings, the task and the initial models."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from stepwell.dynamics import time_factor, weight_factor
from stepwell.models import SeparateAttention
from stepwell.tasks import InContextRegression, covariance

DIM = 8
LANES = 8
"""Runs of one program: as many as a vector of the widest processors holds."""


@dataclass(frozen=True)
class Settings:
    """What can be changed. Settings and thresholds were chosen on seeds 1000 to 1023."""

    ranks: tuple[int, ...]
    """From smaller starts, runs are of the first alone."""
    context: int = 31
    heads: int = 9
    init: float = 5e-3
    """What the published command calls `--init`: the standard deviation of the values, where attention is not divided
    by N."""
    rate: float = 0.02
    steps: int = 20_000
    """The published 20 001 losses have so many steps between them."""
    seeds: int = 24
    first_seed: int = 200
    shown: int = 6
    """So many seeds are trained by descent, as published, and drawn."""
    decades: tuple[int, ...] = (1, 2, 3)
    """Of one rank, runs also start from init/10, init/100, …"""
    draws: int = 300
    """Random starts of which the waits are predicted."""

    @property
    def every_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def shown_seeds(self) -> range:
        return self.every_seed[: self.shown]

    @cached_property
    def size(self) -> float:
        """`init` in the paper's convention, attention divided by N."""
        return self.init * weight_factor("none", "1/N", length=self.context, factors=SeparateAttention.factors)

    @cached_property
    def step(self) -> float:
        """The time t/τ of a published step, in the paper's convention."""
        return 2 * self.rate * time_factor("none", "1/N", length=self.context, factors=SeparateAttention.factors)

    @cached_property
    def task(self) -> InContextRegression:
        """Variances in proportion 1/d, trace 1. The start is isotropic, so the axes may be the eigenvectors."""
        spectrum = 1 / np.arange(1, DIM + 1)
        return InContextRegression(covariance(spectrum / spectrum.sum()), self.context)

    def fresh(self, rank: int) -> np.ndarray:
        """Whether a fresh head leads off each plateau m: where R divides m, as long as there are any."""
        m = np.arange(DIM)
        return (m % rank == 0) & (m < self.heads * rank)

    def further(self, rank: int) -> np.ndarray:
        """Whether a further pair of a head does."""
        m = np.arange(DIM)
        return (m % rank != 0) & (m < self.heads * rank)

    def initial_models(self, rank: int, seeds: Sequence[int], *, decade: int = 0) -> list[SeparateAttention]:
        """One for each seed, in the paper's convention; at a `decade` the same draw, smaller by powers of ten."""
        options: dict[str, Any] = {"dim": DIM, "heads": self.heads, "rank": rank, "init": "per-head"}
        scale = self.size / 10**decade
        return [SeparateAttention.random(**options, scale=scale, key=jax.random.key(seed)) for seed in seeds]


def describe(settings: Settings) -> dict[str, Any]:
    return {
        **paper_settings(settings),
        "initial weights": _initial_weights(settings),
        "data": "infinitely many sequences",
        "seeds": f"{settings.shown} of them drawn above, {settings.seeds} below, from {settings.first_seed} on",
        **{name: getattr(settings, name) for name in ("first_seed", "decades", "draws")},
    }


def paper_settings(settings: Settings) -> dict[str, Any]:
    """Of the paper's figure, where these settings are."""
    return {
        "dimension D": DIM,
        "context length N": settings.context,
        "heads H": settings.heads,
        "eigenvalues of the covariance": "in proportion 1, 1/2, …, 1/8, trace 1",
        "initial weights": f"{_initial_weights(settings)} (the rule is inferred from the date of the published "
        "commands)",
        "data": "80,000 sequences",
        "training": f"{settings.steps + 1:,} recorded losses, rate {settings.rate:g}, attention not divided by N",
        "seeds": 6,
        "ranks R": list(settings.ranks),
    }


def _initial_weights(settings: Settings) -> str:
    return f"init {settings.init:g}: values with that standard deviation, keys and queries with init/√(R(D+1))"
