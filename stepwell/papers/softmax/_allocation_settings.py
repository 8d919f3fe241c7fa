"""Settings of `allocation`."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stepwell.tasks import MultiTaskRegression

from ._full_model import FirstSetting

SPREAD = 0.3
"""Standard deviation of the logarithms of random starts."""
MARGIN = SPREAD**2
"""By so much a head must lead in log ω for the rule to name it with certainty: the rule is of first order in leads."""
UNEQUAL_HEADS = 4


@dataclass(frozen=True)
class Settings(FirstSetting):
    """Starts, steps and a seed of the surrogate; those of softmax attention itself, for equal tasks, and for unequal
    ones with noise and a head more than tasks."""

    rate: float = 0.02
    starts: int = 150
    steps: int = 10_000
    seed: int = 102
    softmax_starts: int = 24
    softmax_sequences: int = 640
    softmax_seed: int = 100
    unequal_starts: int = 12
    unequal_sequences: int = 1000
    unequal_seed: int = 101
    softmax_steps: int = 1500
    softmax_rate: float = 0.02
    softmax_tested: int = 500

    @property
    def alike(self) -> bool:
        """Whether all tasks have one dimension."""
        return len(set(self.dims)) == 1

    @cached_property
    def unequal_task(self) -> MultiTaskRegression:
        return MultiTaskRegression((6, 10, 14), (2.0, 1.0, 0.5), self.context, noise_variance=2.0)

    def drawn_weights(
        self, rng: np.random.Generator, runs: int, heads: int, tasks: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Random small ω and μ, (run, head, task), their logarithms Gaussian."""
        omega, mu = np.exp(SPREAD * rng.standard_normal((2, runs, heads, tasks)))
        return 1.5 * self.omega * omega, self.mu * mu


def shared_words(used: int, tasks: int) -> str:
    """How so many heads serve the tasks."""
    if used == tasks:
        return "a head for each task"
    if used == 1:
        return "all tasks in one head"
    return "two tasks in one head" if used == tasks - 1 else f"{tasks} tasks in {used} heads"


def number_word(count: int) -> str:
    return {1: "one", 2: "two", 3: "three"}.get(count, str(count))
