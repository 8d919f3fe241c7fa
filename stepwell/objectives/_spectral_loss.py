"""The loss of decomposable attention as a function of its eigenvalues, to leading order in a long context."""

import math
from typing import Literal, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.types import Loss
from stepwell.models import AbstractModel, is_attention
from stepwell.tasks import MultiTaskRegression

from ._abstract_objective import AbstractObjective
from ._model_checks import check_eigenvalues, eigenvalues, with_plain_target

Kind = Literal["softmax", "linear"]


class Spectral(AbstractObjective):
    r"""The loss of decomposable attention from its eigenvalues, to leading order in a long context.

    $L = \sum_i S_i \big[ (1 - \sum_h \mu_i^h \omega_i^h)^2 + \tfrac{\phi_i}{L} \sum_{hg} \mu_i^h \mu_i^g\,
    e^{\langle \omega^h, \omega^g \rangle} \big]$, summed over tasks.

    $S_i = \lambda_i d_i$, $\phi_i = 1 + \sigma^2/S_i$,
    $\langle \omega^h, \omega^g \rangle = \sum_j d_j \omega_j^h \omega_j^g$. Softmax weights are importance weights of
    the tilt $e^{x \cdot w}$; here their normalizer is replaced by its mean and $\|x_q^{(i)}\|^2$ by $d_i$. With
    $d_i \ge 30$ and $\sum_j d_j (\omega_j^h)^2 \le 3/2$ expect up to 4 % of error; it grows beyond, see `Exact` and
    `ReducedSampled`. Over several context lengths 1/L is averaged.

    **Arguments:**

    - `task`: the tasks.
    - `attention`: "softmax", or "linear" (divided by N), for which the exponential of a product of weights is the
      product itself.

    **Example:**

    With S = 1 and $\mu\omega = 0.6$ this is $0.4^2 + 16\, e^{0.675}/200$. The `Exact` loss is 0.325.

    >>> task = sw.tasks.MultiTaskRegression(dims=(30,), strengths=1 / 30, context=200)
    >>> model = sw.models.SpectralAttention.balanced(jnp.array([[0.15]]), jnp.array([[4.0]]), dims=(30,))
    >>> print(f"{float(sw.objectives.Spectral(task)(model)):.3f}")
    0.317
    """

    task: MultiTaskRegression
    attention: Kind = eqx.field(static=True)

    @checked
    def __init__(self, task: MultiTaskRegression, *, attention: Kind = "softmax"):
        self.task = with_plain_target(task)
        self.attention = checks.one_of("attention", attention, get_args(Kind))

    @checked
    def per_task(self, model: AbstractModel) -> Float[Array, " task"]:
        """Return the loss of each task."""
        omega, mu = eigenvalues(model, self.task)
        dims = np.array(self.task.dims)
        signals = jnp.asarray(self.task.signals)
        products = (omega * dims) @ omega.T
        overlaps = jnp.exp(products) if self.attention == "softmax" else products
        reached = jnp.sum(mu * omega, axis=0)
        spread = jnp.sum(mu * (overlaps @ mu), axis=0)
        return signals * (1 - reached) ** 2 + (signals + self.task.noise_variance) * self._inverse_length() * spread

    @checked
    def __call__(self, model: AbstractModel) -> Loss:
        return jnp.sum(self.per_task(model))

    @checked
    def check(self, model: AbstractModel) -> None:
        check_eigenvalues(model, self.task, self.attention)

    @checked
    def floor(self, model: AbstractModel) -> float | None:
        r"""Return the least loss of one task, $S \rho/(1+\rho)$.

        $\rho = e\phi d/L$ for one head of softmax attention ($\omega = d^{-1/2}$), $\phi d/L$ for linear attention.
        Several heads of softmax attention can do better, with signs that no flow from positive weights finds, and have
        no best weights; several tasks in one head compete.
        """
        assert is_attention(model)
        heads = model.readout().shape[0]
        if len(self.task.dims) > 1 or (self.attention == "softmax" and heads > 1):
            return None
        signal = float(self.task.signals[0])
        rho = float(self.task.noise_factors[0]) * self.task.dim * self._inverse_length()
        rho *= math.e if self.attention == "softmax" else 1.0
        return signal * rho / (1 + rho)

    def _inverse_length(self) -> float:
        lengths = self.task.context
        return sum(p / n for n, p in zip(lengths.counts, lengths.probabilities, strict=True))
