"""Several linear regressions at once, each on a block of the input with its label in a direction of the output."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays
from stepwell._util.types import RandomKey

from ._abstract_task import assemble
from ._batch import Batch
from ._context_lengths import ContextLengths, as_lengths
from ._covariance import random_rotation
from ._gaussian import AbstractGaussianTask, Inputs, Labels, Places, TaskVectors, Total

Convention = Literal["per-coordinate", "total"]
"""What a strength is: the variance of each coordinate of a task vector, or the mean of its squared length."""


class MultiTaskRegression(AbstractGaussianTask):
    r"""I regressions in one sequence: $y_l = G^\top x_l + \varepsilon_l$, $G = \Phi\, \mathrm{blockdiag}(g_1 … g_I)\,
    \Psi^\top$.

    $x_l, x_q \sim \mathcal N(0, I_d)$; $g_i \sim \mathcal N(0, \lambda_i I_{d_i})$, new in every sequence;
    $\varepsilon_l \sim \mathcal N(0, \sigma^2 I)$; the target $y_q = G^\top x_q$ has no noise, unless
    `target_noise` says so. Task i reads block i of $\Phi^\top x$ with its label in column i of $\Psi$. The setting of
    Chen, Sheen, Wang, Yang (arXiv 2402.19442); the defaults are those of its first figure.

    **Arguments:**

    - `dims`: $d_1 … d_I$, which add up to the dimension d of an input.
    - `strengths`: one positive number for all tasks, or one for each; `convention` says of what.
    - `context`: the number L of context pairs, or a `ContextLengths` distribution.
    - `noise_variance`: $\sigma^2$, of each output.
    - `target_noise`: whether the target is the noisy label, which adds $\sigma^2$ to the squared error of each output.
      `Spectral`, `Exact`, `ReducedSampled` and the theory are for targets without noise.
    - `convention`: with "per-coordinate" a strength is $\lambda_i$, the variance of each coordinate of $g_i$; with
      "total" it is $\lambda_i d_i$, the signal power. The field `strengths` is always $\lambda_i$.
    - `outputs`: $d_y \ge I$, by default I. Outputs beyond the tasks carry noise only.
    - `inputs_rotation`: $\Phi$, "identity", "random" or an orthogonal matrix (d, d).
    - `outputs_rotation`: $\Psi$, "identity", "random" or an orthogonal matrix $(d_y, d_y)$.
    - `key`: a JAX random key; needed only for random rotations.

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((8, 12), strengths=(1.0, 0.5), context=60, noise_variance=0.2)
    >>> task.dim, task.outputs, task.signals.tolist()
    (20, 2, [8.0, 6.0])
    >>> sw.tasks.MultiTaskRegression((8, 10), strengths=1.0, convention="total").strengths
    (0.125, 0.1)
    """

    dims: tuple[int, ...] = eqx.field(static=True)
    strengths: tuple[float, ...] = eqx.field(static=True)
    noise_variance: float = eqx.field(static=True)
    target_noise: bool = eqx.field(static=True)
    context: ContextLengths
    outputs: int = eqx.field(static=True)
    inputs_rotation: Float[np.ndarray, "dim dim"]
    outputs_rotation: Float[np.ndarray, "outputs outputs"]
    centered: bool = eqx.field(static=True)
    whitened: bool = eqx.field(static=True)
    _deviations: Float[np.ndarray, "dim outputs"]

    @checked
    def __init__(
        self,
        dims: Sequence[int] = (10, 10, 10),
        strengths: float | Sequence[float] | Float[np.ndarray, " task"] = 1.0,
        context: int | ContextLengths = 100,
        *,
        noise_variance: float = 0.0,
        target_noise: bool = False,
        convention: Convention = "per-coordinate",
        outputs: int | None = None,
        inputs_rotation: Any = "identity",
        outputs_rotation: Any = "identity",
        key: RandomKey | None = None,
    ):
        self.dims = tuple(checks.whole("dimension of a task", d) for d in dims)
        tasks = len(self.dims)
        if tasks == 0:
            raise InvalidInput("dims are empty; give the dimension of each task, for instance (10, 10, 10)")
        given = [strengths] * tasks if np.ndim(strengths) == 0 else list(np.asarray(strengths).tolist())
        if len(given) != tasks:
            raise InvalidInput(f"{len(given)} strengths for {tasks} tasks; give one number, or one for each task")
        values = [checks.number("strength of a task", value, least=0.0, above=True) for value in given]
        total = checks.one_of("convention", convention, get_args(Convention)) == "total"
        self.strengths = tuple(value / d if total else value for value, d in zip(values, self.dims, strict=True))
        self.noise_variance = checks.number("noise_variance", noise_variance, least=0.0)
        self.target_noise = bool(target_noise)
        self.context = as_lengths(context)
        self.outputs = tasks if outputs is None else checks.whole("outputs", outputs)
        if self.outputs < tasks:
            raise InvalidInput(f"{self.outputs} outputs for {tasks} tasks; each task needs an output of its own")
        require_arrays(
            (sum(self.dims), sum(self.dims)),
            (self.outputs, self.outputs),
            what=f"a task of {sum(self.dims)} inputs and {self.outputs} outputs",
            instead="take smaller dims or fewer outputs",
        )
        self.inputs_rotation = _rotation("inputs_rotation", inputs_rotation, sum(self.dims), key, 0)
        self.outputs_rotation = _rotation("outputs_rotation", outputs_rotation, self.outputs, key, 1)
        self.centered = False
        self.whitened = False
        blocks = np.repeat(np.eye(tasks, self.outputs), self.dims, axis=0)
        self._deviations = blocks * np.repeat(np.sqrt(self.strengths), self.dims)[:, None]

    @property
    def dim(self) -> int:
        return sum(self.dims)

    @property
    def noisy(self) -> bool:
        return self.noise_variance > 0

    @property
    def signals(self) -> Float[np.ndarray, " task"]:
        r"""$S_i = \lambda_i d_i$: the variance of task i's label, and its loss while nothing is learned."""
        return np.array(self.strengths) * np.array(self.dims)

    @property
    def noise_factors(self) -> Float[np.ndarray, " task"]:
        r"""$\phi_i = 1 + \sigma^2/S_i$."""
        return 1.0 + self.noise_variance / self.signals

    @checked
    def compose(self, inputs: Inputs, tasks: TaskVectors, noise: Labels, index: Places, total: Total) -> Batch:
        blocks = self._deviations * tasks
        relation = jnp.einsum("ij,sjp->sip", self.inputs_rotation, blocks @ self.outputs_rotation.T)
        truth = jnp.einsum("sni,sip->snp", inputs, relation)
        shown = truth + self.noise_variance**0.5 * noise if self.noisy else truth
        return assemble(inputs, shown, shown if self.target_noise else truth, self.context)


def _rotation(name: str, given: Any, size: int, key: RandomKey | None, number: int) -> Float[np.ndarray, "size size"]:
    """An orthogonal matrix by name, or a given one if it is orthogonal; `number` distinguishes two from one key."""
    if isinstance(given, str):
        if checks.one_of(name, given, ("identity", "random")) == "identity":
            return np.eye(size)
        if key is None:
            raise InvalidInput(f"{name} is to be random, which needs a key; give key=jax.random.key(0), say")
        return random_rotation(size, key=jax.random.fold_in(key, number))
    matrix = checks.numbers_in(name, given, instead='"identity", "random" or an orthogonal matrix')
    if matrix.shape != (size, size):
        raise InvalidInput(f"{name} has shape {matrix.shape}; it must be ({size}, {size})")
    gap = float(np.abs(matrix.T @ matrix - np.eye(size)).max())
    if not gap < 1e-8:
        raise InvalidInput(f"{name} is not orthogonal (off by {gap:.2g}); take the Q of numpy.linalg.qr")
    return matrix
