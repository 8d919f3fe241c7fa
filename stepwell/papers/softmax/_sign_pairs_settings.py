"""Settings of `sign_pairs`."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from stepwell.tasks import MultiTaskRegression

SIZES = (0.02, 0.1, 0.5, 1.0)
"""Variances a at which softmax itself is sampled."""
OFF_BALANCE = (1e-3, 1e-5, 1e-7)
EXACT_OFF_BALANCE = 0.1
SPACING = 0.1
"""Of the saved times, in which a passage is interpolated."""
DEVIATIONS = 4.0
"""Standard errors allowed."""
RANDOM_SCALE = 0.3
"""Standard deviation of random weights."""


class _Whole(NamedTuple):
    dim: int = 5
    context: int = 40
    noise: float = 0.1
    batch: int = 256
    rate: float = 0.05


WHOLE = _Whole()
"""Of whole matrices."""


@dataclass(frozen=True)
class Settings:
    dim: int = 10
    context: int = 100
    noise: float = 1.0
    until: float = 300.0
    """Where runs off balance end. The loser's score then is about 1e-11; later the solver's errors give it a sign,
    which the flow itself, balanced in k and q, cannot."""
    signed_until: float = 2000.0
    seeds: tuple[int, ...] = (120, 121, 122)
    sequences: int = 8000
    rate: float = 0.02
    steps: int = 20_000
    exact_steps: int = 3000
    exact_sequences: int = 500
    starts: int = 3
    whole_seeds: tuple[int, ...] = (130, 131, 132, 133, 134, 135)
    whole_steps: int = 2000
    random_heads: tuple[int, ...] = (2, 4)
    random_sequences: int = 1000
    random_steps: int = 6000

    @property
    def signal(self) -> float:
        return float(self.dim)

    @cached_property
    def task(self) -> MultiTaskRegression:
        return MultiTaskRegression((self.dim,), 1.0, self.context, noise_variance=self.noise)
