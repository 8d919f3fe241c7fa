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
    r"""Context lengths and their probabilities, as `stepwell.tasks.ContextLengths`.

    **Arguments:**

    - `counts`: the context lengths n, in pairs of input and label before the query.
    - `probabilities`: the probability $\pi_n$ of each length; they add up to one.

    **Example:**

    >>> from stepwell.theory import Lengths
    >>> Lengths.uniform([10, 40])
    Lengths(counts=(10, 40), probabilities=(0.5, 0.5))
    """

    counts: tuple[int, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def uniform(cls, counts: Sequence[int]) -> "Lengths":
        """A uniform mixture of the lengths in `counts`."""
        return cls(tuple(counts), (1 / len(counts),) * len(counts))


@dataclass(frozen=True)
class Regression:
    r"""In-context linear regression, as `stepwell.tasks.InContextRegression`; see `RegressionTask` for the symbols.

    **Arguments:**

    - `covariance`: $\Lambda$, the covariance of the inputs, of shape (dim, dim).
    - `task_covariance`: $\Omega$, the covariance of the task vectors, of shape (dim, dim).
    - `noise_variance`: $\sigma^2$, the variance of the noise on the labels of the context; the target has none.
    - `context`: the context lengths and their probabilities.
    - `outputs`: labels per token. The theory of linear attention is for one.

    **Example:**

    >>> import numpy as np
    >>> from stepwell import theory
    >>> task = theory.Regression(np.diag([0.6, 0.4]), np.eye(2), 0.0, theory.Lengths((31,), (1.0,)))
    >>> theory.linear.levels(task).round(3).tolist()
    [1.0, 0.448, 0.088]
    """

    covariance: Float[np.ndarray, "dim dim"]
    task_covariance: Float[np.ndarray, "dim dim"]
    noise_variance: float
    context: ContextLengthsLike
    outputs: int = 1


@dataclass(frozen=True)
class MultiRegression:
    r"""Several regressions at once, as `stepwell.tasks.MultiTaskRegression`; see `MultiTask` for the symbols.

    **Arguments:**

    - `dims`: $d_i$, how many coordinates of the input each task has.
    - `strengths`: $\lambda_i$, the variance of one coordinate of each task vector.
    - `noise_variance`: $\sigma^2$, the variance of the noise on the labels of the context; the target has none.
    - `context`: the context lengths and their probabilities. The theory of softmax attention is for one length.

    **Example:**

    >>> from stepwell import theory
    >>> task = theory.MultiRegression((5, 5), (1.0, 0.2), 0.0, theory.Lengths((100,), (1.0,)))
    >>> task.signals.tolist()
    [5.0, 1.0]
    """

    dims: tuple[int, ...]
    strengths: tuple[float, ...]
    noise_variance: float
    context: ContextLengthsLike

    @property
    def signals(self) -> Float[np.ndarray, " task"]:
        r"""$S_i = \lambda_i d_i$: the variance of task i's label, and its loss while nothing is learnt."""
        return np.array(self.strengths) * np.array(self.dims)
