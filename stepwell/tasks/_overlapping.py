"""Several linear regressions at once, on inputs that they may share and that may be correlated."""

from collections.abc import Sequence
from typing import get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays

from ._abstract_task import assemble
from ._batch import Batch
from ._context_lengths import ContextLengths, as_lengths
from ._covariance import square_root
from ._gaussian import AbstractGaussianTask, Inputs, Labels, Places, TaskVectors, Total
from ._multi_task import Convention


class OverlappingRegression(AbstractGaussianTask):
    r"""I regressions in one sequence, on inputs that they may share: $y_{l,i} = g_i^\top x_l + \varepsilon_{l,i}$.

    $x_l, x_q \sim \mathcal N(0, \Lambda)$; $g_i \sim \mathcal N(0, \lambda_i 1_{S_i})$, new in every sequence, with
    entries at the support $S_i$ and zeros elsewhere; $\varepsilon_l \sim \mathcal N(0, \sigma^2 I)$; the target has no
    noise, unless `target_noise` says so. With $\Lambda = I$ and supports that are disjoint and follow each other it is
    `MultiTaskRegression`, sequence by sequence; the theory of that task does not hold for others. The setting of the
    simulations of He, Pan, Chen and Yang (arXiv 2503.12734), with two tasks of four inputs of which they share two.

    **Arguments:**

    - `supports`: of each task, which entries of the input it reads, counted from 0.
    - `strengths`: one positive number for all tasks, or one for each; `convention` says of what.
    - `context`: the number L of context pairs, or a `ContextLengths` distribution.
    - `covariance`: $\Lambda$, a matrix (dim, dim), by default the identity of as many inputs as the supports name.
    - `noise_variance`: $\sigma^2$, of each output.
    - `target_noise`: whether the target is the noisy label, which adds $\sigma^2$ to the squared error of each output.
    - `convention`: with "per-coordinate" a strength is $\lambda_i$, the variance of each entry of $g_i$; with "total"
      it is $\lambda_i |S_i|$. The field `strengths` is always $\lambda_i$.

    **Example:**

    >>> task = sw.tasks.OverlappingRegression([range(4), range(2, 6)], context=48, noise_variance=0.4)
    >>> task.dim, task.outputs, task.signals.tolist()
    (6, 2, [4.0, 4.0])
    """

    supports: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    strengths: tuple[float, ...] = eqx.field(static=True)
    covariance: Float[np.ndarray, "dim dim"]
    noise_variance: float = eqx.field(static=True)
    target_noise: bool = eqx.field(static=True)
    context: ContextLengths
    centered: bool = eqx.field(static=True)
    whitened: bool = eqx.field(static=True)
    _input_root: Float[np.ndarray, "dim dim"]
    _deviations: Float[np.ndarray, "dim outputs"]

    @checked
    def __init__(
        self,
        supports: Sequence[Sequence[int]],
        strengths: float | Sequence[float] | Float[np.ndarray, " task"] = 1.0,
        context: int | ContextLengths = 100,
        *,
        covariance=None,
        noise_variance: float = 0.0,
        target_noise: bool = False,
        convention: Convention = "per-coordinate",
    ):
        self.supports = tuple(
            tuple(checks.whole("entry of a support", one, least=0) for one in support) for support in supports
        )
        if not self.supports or not all(len(one) == len(set(one)) > 0 for one in self.supports):
            raise InvalidInput(
                f"supports are {[list(one) for one in self.supports]}; give the entries of each task, at least one and "
                "each once, for instance [[0, 1, 2], [2, 3]]"
            )
        tasks, least = len(self.supports), 1 + max(map(max, self.supports))
        given = [strengths] * tasks if np.ndim(strengths) == 0 else list(np.asarray(strengths).tolist())
        if len(given) != tasks:
            raise InvalidInput(f"{len(given)} strengths for {tasks} tasks; give one number, or one for each task")
        values = [checks.number("strength of a task", value, least=0.0, above=True) for value in given]
        total = checks.one_of("convention", convention, get_args(Convention)) == "total"
        pairs = zip(values, self.supports, strict=True)
        self.strengths = tuple(value / len(one) if total else value for value, one in pairs)
        if covariance is None:
            require_arrays((least, least), what=f"a task of {least} inputs", instead="take smaller entries of supports")
            covariance = np.eye(least)
        self.covariance = checks.covariance_matrix("covariance", covariance)
        if len(self.covariance) < least:
            raise InvalidInput(
                f"covariance is of {len(self.covariance)} inputs, and supports name entry {least - 1}; give a matrix "
                f"({least}, {least}) or larger"
            )
        self.noise_variance = checks.number("noise_variance", noise_variance, least=0.0)
        self.target_noise = bool(target_noise)
        self.context = as_lengths(context)
        self.centered = False
        self.whitened = False
        self._input_root = square_root(self.covariance)
        self._deviations = np.zeros((len(self.covariance), tasks))
        for task, (support, strength) in enumerate(zip(self.supports, self.strengths, strict=True)):
            self._deviations[list(support), task] = strength**0.5

    @property
    def dim(self) -> int:
        return len(self.covariance)

    @property
    def outputs(self) -> int:
        return len(self.supports)

    @property
    def noisy(self) -> bool:
        return self.noise_variance > 0

    @property
    def signals(self) -> Float[np.ndarray, " task"]:
        r"""$S_i = \lambda_i \sum_{j \in S_i} \Lambda_{jj}$: the variance of task i's label without noise."""
        return np.diag(self.covariance) @ self._deviations**2

    @checked
    def compose(self, inputs: Inputs, tasks: TaskVectors, noise: Labels, index: Places, total: Total) -> Batch:
        x = inputs @ self._input_root
        truth = jnp.einsum("sni,sip->snp", x, self._deviations * tasks)
        shown = truth + self.noise_variance**0.5 * noise if self.noisy else truth
        return assemble(x, shown, shown if self.target_noise else truth, self.context)
