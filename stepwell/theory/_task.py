"""What the theory reads of a task. Those of `stepwell.tasks` qualify, as does anything so shaped."""

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import with_axes
from stepwell._util.errors import InvalidInput


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
    def context(self) -> ContextLengthsLike: ...

    @property
    def outputs(self) -> int: ...


@runtime_checkable
class LinearTask(Protocol):
    r"""What the theory of linear attention reads of a task of one output: a `RegressionTask`, or any with moments.

    A task that is not Gaussian has a method `moments("1/N")`, which returns `input` $\Lambda$, `cross` $M$, `second`
    $C$ and `label_power`, as `stepwell.tasks.PopulationMoments`. Fixed points, levels and the flow of small weights
    depend on a task through these alone, whatever its distributions.
    """

    @property
    def context(self) -> ContextLengthsLike: ...

    @property
    def outputs(self) -> int: ...


_READ = ("covariance", "task_covariance", "noise_variance", "context", "outputs")
_LISTED = f"{', '.join(_READ[:-1])} and {_READ[-1]}"


@runtime_checkable
class PredictedModel(Protocol):
    """What the theory reads of a model: its weights, as its equations name them, and its conventions."""

    factors: ClassVar[int]

    @property
    def activation(self) -> str: ...

    @property
    def normalization(self) -> Any: ...

    def weights(self) -> dict[str, Any]: ...

    def theory_weights(self, weights: dict[str, Any]) -> dict[str, Any]: ...


@runtime_checkable
class PredictedEnsemble(Protocol):
    """Models of one shape whose weights have a first axis `run`, as `stepwell.dynamics.Ensemble`."""

    @property
    def stacked(self) -> Any: ...

    @property
    def size(self) -> int: ...


def require_regression(task: Any) -> None:
    """Raise `InvalidInput` unless this is a `RegressionTask` of one output: the theory is of one label per token."""
    require_gaussian(task)
    _require_one_output(task)


def require_gaussian(task: Any) -> RegressionTask:
    """The task, if it is a `RegressionTask`; otherwise `InvalidInput` says what it lacks."""
    missing = _missing(task)
    if missing is not None:
        raise InvalidInput(
            f"{type(task).__name__} has no {missing}; this part of the theory is for Gaussian inputs and reads "
            f"{_LISTED}, so give the class these, or describe the task by theory.Regression(…); levels, fixed points "
            "and drop_schedule take any task with moments(normalization)"
        )
    return task


def own_moments(task: Any) -> Any:
    """The moments that a task has by a method of its own, attention divided by N; None for a `RegressionTask`.

    `InvalidInput` says what a task lacks that is neither.
    """
    missing = _missing(task)
    if missing is None:
        _require_one_output(task)
        return None
    reason = ""
    try:
        moments = task.moments
    except AttributeError:
        pass
    else:
        _require_one_output(task)
        try:
            return moments("1/N")
        except InvalidInput as error:
            reason = f": {error}"
    raise InvalidInput(
        f"{type(task).__name__} has no {missing}; the theory reads {_LISTED}, or a method moments(normalization) where "
        f"inputs are not Gaussian, so give the class these, or describe the task by theory.Regression(…){reason}"
    )


def _missing(task: Any) -> str | None:
    """The first attribute of a `RegressionTask` that a task does not have."""
    for name in _READ:
        try:
            getattr(task, name)
        except AttributeError:
            return name
    return None


def _dim(task: Any) -> int:
    try:
        return len(task.covariance)
    except AttributeError:
        return task.dim


def _require_one_output(task: Any) -> None:
    if task.outputs != 1:
        raise InvalidInput(f"the task has {task.outputs} outputs; the theory is for one, so build it with outputs=1")


@runtime_checkable
class MultiTask(Protocol):
    r"""In-context linear regression of several tasks at once, as `stepwell.tasks.MultiTaskRegression`.

    Task i has its own $d_i$ coordinates of the input $x \sim \mathcal N(0, I)$ and its own output,
    $y_i = g_i^\top x^{(i)} + \varepsilon_i$, $g_i \sim \mathcal N(0, \lambda_i I)$,
    $\varepsilon_i \sim \mathcal N(0, \sigma^2)$; the target has no noise.
    `dims` are $d_i$, `strengths` $\lambda_i$, always those of one coordinate, and `noise_variance` $\sigma^2$.
    """

    @property
    def dims(self) -> tuple[int, ...]: ...

    @property
    def strengths(self) -> tuple[float, ...]: ...

    @property
    def noise_variance(self) -> float: ...

    @property
    def context(self) -> ContextLengthsLike: ...


def the_context(task: MultiTask) -> int:
    """The task's only context length; `InvalidInput` if it has several."""
    if len(task.context.counts) != 1:
        raise InvalidInput(
            f"the task has context lengths {task.context.counts}; the theory of softmax attention is for one, "
            f"so build it with a single number, for instance {max(task.context.counts)}"
        )
    return task.context.counts[0]


with_axes(LinearTask, lambda task: dict.fromkeys(("dim", "mode"), _dim(task)))
with_axes(RegressionTask, lambda task: {"dim": len(task.covariance), "mode": len(task.covariance)})
with_axes(MultiTask, lambda task: {"task": len(task.dims)})
