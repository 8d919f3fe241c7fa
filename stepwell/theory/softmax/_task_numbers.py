"""The numbers of a task that every formula reads, and the two speeds of its training."""

from typing import NamedTuple, TypedDict

import numpy as np

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import MultiTask, refuse_noisy_target, the_context
from .._types import PerTask


class TaskNumbers(NamedTuple):
    r"""Of each task i: `dims` $d_i$, `strengths` $\lambda_i$, `signal` $S_i = \lambda_i d_i$ and `phi`
    $\phi_i = 1 + \sigma^2/S_i$. Of all: `context` L and `noise` $\sigma^2$.
    """

    dims: PerTask
    strengths: PerTask
    signal: PerTask
    phi: PerTask
    context: int
    noise: float

    @property
    def rho(self) -> PerTask:
        r"""$\rho_i = e\phi_i d_i/L$: how much variance costs a head of one task, where the flow ends."""
        return np.e * self.phi * self.dims / self.context


@checked
def task_numbers(task: MultiTask) -> TaskNumbers:
    """Return the constants of a task that the formulas use.

    Raises `InvalidInput` for tasks for which they do not hold, for instance with several context lengths or with a
    noisy target.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** `TaskNumbers`: `dims`, `strengths`, `signal`, `phi` and `rho` of each task, and `context` and `noise`.

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((10, 20), context=100, noise_variance=1.0)
    >>> constants = sw.theory.softmax.task_numbers(task)
    >>> constants.phi.tolist(), constants.rho.round(3).tolist()
    ([1.1, 1.05], [0.299, 0.571])
    """
    if not isinstance(task, MultiTask):
        raise InvalidInput(
            f"{type(task).__name__} is not of regressions on inputs of their own, which have dims, strengths, "
            "noise_variance and context; take a MultiTaskRegression, or describe them by theory.MultiRegression(…)"
        )
    refuse_noisy_target(task)
    if len(task.dims) == 0 or len(task.dims) != len(task.strengths):
        raise InvalidInput(
            f"the task has {len(task.dims)} dims and {len(task.strengths)} strengths; give equal numbers, at least one"
        )
    dims = np.array([checks.whole("a task's dimension", dim) for dim in task.dims], dtype=float)
    lam = np.array([checks.number("a task's strength", one, least=0.0, above=True) for one in task.strengths])
    noise = checks.number("noise_variance", task.noise_variance, least=0.0)
    return TaskNumbers(dims, lam, lam * dims, 1 + noise / (lam * dims), the_context(task), noise)


def require_weights(task: MultiTask, *weights: np.ndarray) -> None:
    """Raise `InvalidInput` unless all weights have one shape, with a column for each task."""
    for array in weights:
        if not np.all(np.isfinite(array)):
            raise InvalidInput("weights have entries that are not finite; every entry must be a number")
        if array.shape[-1] != len(task.dims) or array.shape != weights[0].shape:
            raise InvalidInput(
                f"weights have shapes {', '.join(str(one.shape) for one in weights)}; all must be (…, heads, "
                f"{len(task.dims)}), for there are {len(task.dims)} tasks"
            )


class FlowOptions(TypedDict, total=False):
    r"""How the weights are trained, as keywords.

    The flow is $dW/dt = -\tfrac{c_\ell}2\,\partial_W\,\mathbb E\|y_q - \hat y\|^2$, and times are those of this flow: a
    step of gradient descent of rate η on the squared loss, summed over tasks, lasts $2\eta/c_\ell$.

    - `loss_factor`: $c_\ell$. The default is 2, the flow of the plain squared loss. That the paper means this is
      inferred from the times in its captions. With 1, the time is that of `stepwell.dynamics`, and all times double.
    - `embedding`: the width $d_e$ of a head, by default the dimension of the input.
    - `score_scale`: what scores are multiplied by, by default $1/\sqrt{d_e}$. It overrides `embedding`.
    """

    loss_factor: float
    embedding: float
    score_scale: float


class Speeds(NamedTuple):
    r"""`scores` is $2c_\ell$ times the scale of the scores, `values` $2c_\ell$: prefactors of the flow."""

    scores: float
    values: float


def speeds(
    task: MultiTask, *, loss_factor: float = 2.0, embedding: float | None = None, score_scale: float | None = None
) -> Speeds:
    """Prefactors of the flow, from the keywords of `FlowOptions`."""
    loss_factor = checks.number("loss_factor", loss_factor, least=0.0, above=True)
    width = checks.number("embedding", sum(task.dims) if embedding is None else embedding, least=0.0, above=True)
    scale = width**-0.5 if score_scale is None else checks.number("score_scale", score_scale, least=0.0, above=True)
    return Speeds(2 * loss_factor * scale, 2 * loss_factor)
