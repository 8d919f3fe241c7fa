"""What the theory reads of a task. `stepwell.tasks.InContextRegression` qualifies, as does anything so shaped."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from stepwell._errors import InvalidInput


@runtime_checkable
class ContextLengthsLike(Protocol):
    r"""Context lengths n with their probabilities $\pi_n$, which add up to one."""

    @property
    def counts(self) -> tuple[int, ...]: ...

    @property
    def probabilities(self) -> tuple[float, ...]: ...


@runtime_checkable
class RegressionTask(Protocol):
    r"""In-context linear regression.

    $x \sim \mathcal N(0, \Lambda)$, $w \sim \mathcal N(0, \Omega)$, $y_n = w^\top x_n + \varepsilon_n$ with
    $\varepsilon_n \sim \mathcal N(0, \sigma^2)$, and a target $y_q = w^\top x_q$ without noise.
    """

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]: ...

    @property
    def task_covariance(self) -> Float[np.ndarray, "dim dim"]: ...

    @property
    def noise_variance(self) -> float: ...

    @property
    def lengths(self) -> ContextLengthsLike: ...

    @property
    def outputs(self) -> int: ...


def require_one_output(task: RegressionTask) -> None:
    """The theory is that of one label per token."""
    if task.outputs != 1:
        raise InvalidInput(f"the task has {task.outputs} outputs; the theory is for one, so build it with outputs=1")
