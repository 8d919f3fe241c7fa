"""A task described by numbers alone: what the theory reads of it, for use without JAX and without sequences.

The tasks of `stepwell.tasks` have the same attributes, so every function of the theory takes either.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ._task import ContextLengthsLike


@dataclass(frozen=True)
class Lengths:
    """Context lengths and their probabilities, as `stepwell.tasks.ContextLengths`."""

    counts: tuple[int, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def uniform(cls, counts: Sequence[int]) -> "Lengths":
        """A uniform mixture of the lengths in `counts`."""
        return cls(tuple(counts), (1 / len(counts),) * len(counts))


@dataclass(frozen=True)
class Regression:
    r"""In-context linear regression, as `stepwell.tasks.InContextRegression`; see `RegressionTask` for the symbols."""

    covariance: Float[np.ndarray, "dim dim"]
    task_covariance: Float[np.ndarray, "dim dim"]
    noise_variance: float
    lengths: ContextLengthsLike
    outputs: int = 1


@dataclass(frozen=True)
class MultiRegression:
    r"""Several regressions at once, as `stepwell.tasks.MultiTaskRegression`; see `MultiTask` for the symbols."""

    dims: tuple[int, ...]
    strengths: tuple[float, ...]
    noise_variance: float
    lengths: ContextLengthsLike

    @property
    def signals(self) -> Float[np.ndarray, " task"]:
        r"""$S_i = \lambda_i d_i$: the variance of task i's label, and its loss while nothing is learnt."""
        return np.array(self.strengths) * np.array(self.dims)
