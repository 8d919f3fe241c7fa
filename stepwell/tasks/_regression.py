"""In-context linear regression."""

from typing import get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Normalization

from ._abstract_task import PopulationMoments, assemble
from ._batch import Batch
from ._context_lengths import ContextLengths, as_lengths, attention_scale
from ._covariance import square_root
from ._gaussian import AbstractGaussianTask, Inputs, Labels, Places, TaskVectors, Total


class InContextRegression(AbstractGaussianTask):
    r"""Sequences of pairs (x, y) with a linear relation that is new in every sequence.

    $x_n, x_q \sim \mathcal N(0, \Lambda)$; a task vector $w \sim \mathcal N(0, \Omega)$ for each output, once a
    sequence; $y_n = w^\top x_n + \varepsilon_n$, $\varepsilon_n \sim \mathcal N(0, \sigma^2)$; the target
    $y_q = w^\top x_q$ has no noise, unless `target_noise` says so.

    **Arguments:**

    - `covariance`: $\Lambda$, a matrix (dim, dim); `stepwell.tasks.covariance` builds one from eigenvalues.
    - `context`: the number N of context pairs, or a `ContextLengths` distribution. The default is the paper's 31.
    - `task_covariance`: $\Omega$, a matrix (dim, dim), by default the identity.
    - `noise_variance`: $\sigma^2$.
    - `target_noise`: whether the target is the noisy label, $y_q = w^\top x_q + \varepsilon_q$, which adds $\sigma^2$
      to every loss.
    - `outputs`: the number of labels of a token, with independent task vectors.
    - `centered`: whether the inputs of a finite sample have mean zero exactly, at each position over the sequences, as
      in the published script.
    - `whitened`: whether the task vectors of a finite sample have mean zero and unit sample covariance exactly (before
      they are multiplied by $\Omega^{1/2}$), as in the published script.

    **Example:**

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), context=10)
    >>> batch = task.sample(100, key=jax.random.key(0))
    >>> batch.tokens.shape, batch.labels.shape
    ((100, 11, 3), (100, 11, 1))
    """

    covariance: Float[np.ndarray, "dim dim"]
    task_covariance: Float[np.ndarray, "dim dim"]
    noise_variance: float = eqx.field(static=True)
    target_noise: bool = eqx.field(static=True)
    context: ContextLengths
    outputs: int = eqx.field(static=True)
    centered: bool = eqx.field(static=True)
    whitened: bool = eqx.field(static=True)
    _input_root: Float[np.ndarray, "dim dim"]
    _task_root: Float[np.ndarray, "dim dim"]

    @checked
    def __init__(
        self,
        covariance,
        context: int | ContextLengths = 31,
        *,
        task_covariance=None,
        noise_variance: float = 0.0,
        target_noise: bool = False,
        outputs: int = 1,
        centered: bool = False,
        whitened: bool = False,
    ):
        self.covariance = checks.covariance_matrix("covariance", covariance)
        dim = self.covariance.shape[0]
        given = np.eye(dim) if task_covariance is None else task_covariance
        self.task_covariance = checks.covariance_matrix("task_covariance", given)
        if self.task_covariance.shape != self.covariance.shape:
            raise InvalidInput(
                f"task_covariance has shape {self.task_covariance.shape}; covariance has {self.covariance.shape}, "
                "and the two must agree"
            )
        self.noise_variance = checks.number("noise_variance", noise_variance, least=0.0)
        self.target_noise = bool(target_noise)
        self.context = as_lengths(context)
        self.outputs = checks.whole("outputs", outputs)
        self.centered = bool(centered)
        self.whitened = bool(whitened)
        self._input_root = square_root(self.covariance)
        self._task_root = square_root(self.task_covariance)

    @property
    def dim(self) -> int:
        return self.covariance.shape[0]

    @property
    def noisy(self) -> bool:
        return self.noise_variance > 0

    @checked
    def compose(self, inputs: Inputs, tasks: TaskVectors, noise: Labels, index: Places, total: Total) -> Batch:
        x = inputs @ self._input_root
        w = jnp.einsum("ij,sjo->sio", self._task_root, tasks)
        truth = jnp.einsum("sni,sio->sno", x, w)
        shown = truth + self.noise_variance**0.5 * noise if self.noisy else truth
        return assemble(x, shown, shown if self.target_noise else truth, self.context)

    @checked
    def closed_form(self, normalization: Normalization) -> PopulationMoments:
        r"""Return the moments at infinitely many sequences, in closed form.

        For a context of n pairs and $s_n = 1/n$,

        $M = \Lambda\Omega$ and
        $C = (1 + \tfrac1n)\Lambda\Omega\Lambda + \tfrac1n(\mathrm{tr}(\Omega\Lambda) + \sigma^2)\Lambda$,

        by Isserlis' theorem. Another normalization multiplies $\beta$ by $n s_n$, M once and C twice. A mix of lengths
        averages M and C. A target with noise adds $\sigma^2$ to its power, and nothing else. Finite-sample options of
        the task (`centered`, `whitened`) do not change the population.
        """
        checks.one_of("normalization", normalization, get_args(Normalization))
        lam, omega = self.covariance, self.task_covariance
        power = float(np.trace(omega @ lam))
        signal = lam @ omega @ lam
        cross, second = np.zeros_like(lam), np.zeros_like(lam)
        for n, probability in zip(self.context.counts, self.context.probabilities, strict=True):
            ratio = n * attention_scale(normalization, n)
            cross += probability * ratio * lam @ omega
            second += probability * ratio**2 * ((1 + 1 / n) * signal + (power + self.noise_variance) / n * lam)
        return PopulationMoments(lam, cross, second, power + self.target_noise * self.noise_variance)
