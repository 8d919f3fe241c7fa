"""The loss of decomposable softmax attention without approximation, where every task is served by one head."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.recipes import remember
from stepwell._util.types import Loss
from stepwell.models import AbstractModel, is_spectral
from stepwell.tasks import MultiTaskRegression

from ._abstract import AbstractObjective, require
from ._eigenvalues import check_eigenvalues, eigenvalues
from ._query_means import QueryMeans, query_means

_BEYOND = 1e-9
"""The probability at most that a head is sharper than the table reaches."""


class Exact(AbstractObjective):
    r"""The exact loss of decomposable softmax attention where every task is served by one head at most.

    $L = \sum_i S_i \big[(1 - c_i)^2 + 2 c_i \langle R \rangle_i
    + c_i^2 \langle \tfrac{T - R}{a^2} - 1 \rangle_i\big] + \mu_i^2 (S_i + \sigma^2) \langle R \rangle$, over all tasks.

    At any length and dimension; $c_i = \mu_i \omega_i$. R and T are moments of softmax weights at sharpness
    $a^2 = \sum_j \omega_j^2 n_j$ (`softmax_moments`), $n_j \sim \chi^2_{d_j}$; $\langle \cdot \rangle$ is the mean over
    the query, $\langle \cdot \rangle_i$ that with two more degrees of freedom in $n_i$, which is what a factor
    $n_i/d_i$ amounts to. Relative errors are below 1e-6.

    Every task must have $\mu_i^h \ne 0$ for one head h at most; a head may serve several. Weights that make a
    $\mu_i^h$ of zero must both be zero, and then stay so: with two heads the gradient would need moments of both.

    **Arguments:**

    - `task`: the tasks, with one context length.
    - `reach`: the largest $a^2$ that is tabled, from 10 to 240; 60 by default. For weights that are sharper the loss is
      not a number.

    **Example:**

    The loss is 1 before training, the signal $S = \lambda d$. A small `reach` is enough here, and is tabled faster.

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression(dims=(10,), strengths=0.1, context=100)
    >>> model = sw.models.SpectralAttention.balanced(jnp.array([[0.3]]), jnp.array([[2.0]]), dims=(10,))
    >>> print(f"{float(sw.objectives.Exact(task, reach=10.0)(model)):.3f}")
    0.279
    """

    task: MultiTaskRegression
    reach: float = eqx.field(static=True)
    _means: QueryMeans

    @checked
    def __init__(self, task: MultiTaskRegression, *, reach: float = 60.0):
        require(
            task.context.fixed, f"the task has {len(task.context.counts)} context lengths; the exact loss is for one"
        )
        self.task = task
        self.reach = checks.number("reach", reach, least=10.0, most=240.0)
        self._means = query_means(task.context.longest, self.reach)
        remember(self, "Exact", task=task, reach=self.reach)

    @checked
    def per_task(self, model: AbstractModel) -> Float[Array, " task"]:
        """The loss of each task."""
        omega, mu = eigenvalues(model, self.task)
        dims = jnp.array(self.task.dims, dtype=float)
        squares = omega**2
        overlap, _ = self._means(squares, dims)
        missed, spread = self._means(squares[:, None], dims + 2 * jnp.eye(dims.size))
        reached = mu * omega
        signals = jnp.asarray(self.task.signals)
        served = signals * (reached**2 * (1 + spread) - 2 * reached * (1 - missed))
        served += mu**2 * (signals + self.task.noise_variance) * overlap[:, None]
        sharp = jnp.any(_sharpest(omega, self.task.dims, jnp) > self.reach)
        return jnp.where(sharp, jnp.nan, signals + jnp.sum(served, axis=0))

    @checked
    def __call__(self, model: AbstractModel) -> Loss:
        return jnp.sum(self.per_task(model))

    @checked
    def check(self, model: AbstractModel) -> None:
        check_eigenvalues(model, self.task, "softmax")
        omega, mu = (np.asarray(part) for part in eigenvalues(model, self.task))
        touched = mu != 0
        if is_spectral(model):
            touched = (np.asarray(model.value) != 0) | (np.asarray(model.output) != 0)
        heads_per_task = np.sum(touched, axis=0)
        require(
            bool(np.all(heads_per_task <= 1)),
            f"task {int(np.argmax(heads_per_task > 1)) + 1} is served by several heads, and the exact loss is known "
            "for one; set the other heads' value and output for it to 0, or use ReducedSampled",
        )
        sharpest = float(np.max(_sharpest(omega, self.task.dims, np)))
        require(
            sharpest <= self.reach,
            f"a head's scores have a variance of up to {sharpest:.3g}, and the table reaches {self.reach:g}; give "
            f"reach={1.2 * sharpest:.3g}, or smaller weights",
        )

    @checked
    def floor(self, model: AbstractModel) -> float | None:
        return None


def _sharpest(omega: Any, dims: tuple[int, ...], xp: Any) -> Any:
    r"""What $a^2$ hardly ever exceeds, for each head: $\sum_j d_j s_j + 2\sqrt{t \sum_j d_j s_j^2} + 2 t \max_j s_j$
    with $s = \omega^2$ has a probability of at most $e^{-t}$ (Laurent and Massart, Ann. Stat. 28, 2000)."""
    squares, t = omega**2, -np.log(_BEYOND)
    spread = 2 * xp.sqrt(t * (squares**2 @ np.array(dims)))
    return squares @ np.array(dims) + spread + 2 * t * xp.max(squares, axis=1)
