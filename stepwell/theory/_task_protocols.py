"""What the theory reads of a task: protocols, and tasks described by numbers alone, for use without JAX."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
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


@runtime_checkable
class RegressionTask(LinearTask, Protocol):
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


_READ = ("covariance", "task_covariance", "noise_variance", "context", "outputs")
_LISTED = "covariance, task_covariance, noise_variance, context and outputs"


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
    refuse_noisy_target(task)
    missing = _missing(task)
    if missing is not None:
        raise InvalidInput(
            f"{type(task).__name__} has no {missing}; this part of the theory is for Gaussian inputs and reads "
            f"{_LISTED}. If the inputs are Gaussian, give the class these, or describe the task by "
            "theory.Regression(…); otherwise use levels and fixed points, which take any task with "
            "moments(normalization)"
        )
    return task


def refuse_noisy_target(task: Any) -> None:
    """Raise `InvalidInput` for a target with noise, which adds its variance to every loss and changes nothing else."""
    if getattr(task, "target_noise", False) and task.noise_variance > 0:
        raise InvalidInput(
            "the task has target_noise, and losses of the theory are of a target without noise; build the task with "
            f"target_noise=False, and add its noise_variance, {task.noise_variance:g}, to the loss of each output"
        )


def own_moments(task: Any) -> Any:
    """The moments that a task has by a method of its own, attention divided by N; None for a `RegressionTask`.

    `InvalidInput` says what a task lacks that is neither.
    """
    refuse_noisy_target(task)
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
    """The first attribute of a `RegressionTask` that a task does not have, or that its inputs are not Gaussian."""
    for name in _READ:
        try:
            getattr(task, name)
        except AttributeError:
            return name
    return None if _is_gaussian(task) else "Gaussian inputs (its moments are not those that follow from covariance)"


def _is_gaussian(task: Any) -> bool:
    """Whether the moments that a task has by a method of its own, if any, are those of Gaussian inputs and labels w·x.

    Tests compare the tasks of this package; those of others are compared here, to far more than rounding.
    """
    if type(task).__module__.startswith("stepwell."):
        return True
    try:
        moments = task.moments("1/N")
    except (AttributeError, InvalidInput):
        return True
    cross = task.covariance @ task.task_covariance
    pairs = (
        (moments.input, task.covariance),
        (moments.cross, cross),
        (moments.second, gaussian_second_moment(task)),
        (moments.label_power, np.trace(cross)),
    )
    return all(np.allclose(own, known, rtol=0.0, atol=1e-6 * np.abs(own).max()) for own, known in pairs)


def gaussian_second_moment(task: RegressionTask) -> Float[np.ndarray, "dim dim"]:
    """The second moment of the context statistic for Gaussian inputs, as `theory.linear.moments` explains it."""
    nu = float(sum(p / n for n, p in zip(task.context.counts, task.context.probabilities, strict=True)))
    lam, power = task.covariance, float(np.sum(task.task_covariance * task.covariance))
    signal = lam @ task.task_covariance @ lam
    second = (1 + nu) * signal + nu * (power + task.noise_variance) * lam
    return (second + second.T) / 2


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


def the_context(task: MultiTask | RegressionTask) -> int:
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
        """Return a uniform mixture of the lengths in `counts`."""
        return cls(tuple(counts), (1 / len(counts),) * len(counts))


def _lengths(context: int | ContextLengthsLike) -> ContextLengthsLike:
    if isinstance(context, ContextLengthsLike):
        return context
    return Lengths((checks.whole("context length", context),), (1.0,))


@dataclass(frozen=True, init=False)
class Regression:
    r"""In-context linear regression, as `stepwell.tasks.InContextRegression`; see `RegressionTask` for the symbols.

    **Arguments:**

    - `covariance`: $\Lambda$, the covariance of the inputs, of shape (dim, dim).
    - `task_covariance`: $\Omega$, the covariance of the task vectors, of shape (dim, dim).
    - `noise_variance`: $\sigma^2$, the variance of the noise on the labels of the context; the target has none.
    - `context`: the context length; for several, `Lengths` with their probabilities.
    - `outputs`: labels per token. The theory of linear attention is for one.

    **Example:**

    >>> from stepwell import theory
    >>> task = theory.Regression(np.diag([0.6, 0.4]), np.eye(2), 0.0, 31)
    >>> theory.linear.levels(task).round(3).tolist()
    [1.0, 0.448, 0.088]
    """

    covariance: Float[np.ndarray, "dim dim"]
    task_covariance: Float[np.ndarray, "dim dim"]
    noise_variance: float
    context: ContextLengthsLike
    outputs: int

    def __init__(
        self,
        covariance: Float[np.ndarray, "dim dim"],
        task_covariance: Float[np.ndarray, "dim dim"],
        noise_variance: float,
        context: int | ContextLengthsLike,
        outputs: int = 1,
    ):
        values = (covariance, task_covariance, noise_variance, _lengths(context), outputs)
        vars(self).update(zip(_READ, values, strict=True))


@dataclass(frozen=True, init=False)
class MultiRegression:
    r"""Several regressions at once, as `stepwell.tasks.MultiTaskRegression`; see `MultiTask` for the symbols.

    **Arguments:**

    - `dims`: $d_i$, how many coordinates of the input each task has.
    - `strengths`: $\lambda_i$, the variance of one coordinate of each task vector.
    - `noise_variance`: $\sigma^2$, the variance of the noise on the labels of the context; the target has none.
    - `context`: the context length. The theory of softmax attention is for one; `Lengths` describes several.

    **Example:**

    >>> from stepwell import theory
    >>> task = theory.MultiRegression((5, 5), (1.0, 0.2), 0.0, 100)
    >>> task.signals.tolist()
    [5.0, 1.0]
    """

    dims: tuple[int, ...]
    strengths: tuple[float, ...]
    noise_variance: float
    context: ContextLengthsLike

    def __init__(
        self,
        dims: tuple[int, ...],
        strengths: tuple[float, ...],
        noise_variance: float,
        context: int | ContextLengthsLike,
    ):
        values = {"dims": dims, "strengths": strengths, "noise_variance": noise_variance}
        vars(self).update(values, context=_lengths(context))

    @property
    def signals(self) -> Float[np.ndarray, " task"]:
        r"""$S_i = \lambda_i d_i$: the variance of task i's label, and its loss while nothing is learned."""
        return np.array(self.strengths) * np.array(self.dims)
