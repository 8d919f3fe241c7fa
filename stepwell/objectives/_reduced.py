"""The loss of decomposable softmax attention over few Gaussians a token: one for each task."""

from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.memory import require_memory
from stepwell._util.recipes import remember
from stepwell._util.types import Loss, Precision, RandomKey
from stepwell.models import AbstractModel
from stepwell.tasks import MultiTaskRegression

from ._abstract import AbstractObjective, require
from ._control import coefficients, control_sums
from ._eigenvalues import check_eigenvalues, eigenvalues
from ._softmax_sums import softmax_sums

_GROUPS = 16
"""Parts of the sample that are drawn independently, from whose spread the standard error is computed."""


class ReducedSampled(AbstractObjective):
    r"""The loss of decomposable softmax attention over sequences of few Gaussians a token: one for each task.

    $L = \sum_i \langle \lambda_i [ (n_i - \sum_l P_{i,l} z_{l,i})^2 + (d_i - 1) \|P_i\|^2 ] + \sigma^2 \|P_i\|^2
    \rangle$, $P_i = \sum_h \mu_i^h p^h$.

    Exact but for the average over sequences, at any length and dimension, summed over tasks. Of a sequence only the
    components of the tokens along the blocks of the query matter: $z_{l,i} \sim \mathcal N(0, 1)$, $n_i^2 \sim
    \chi^2_{d_i}$, $p^h = \mathrm{softmax}_l \sum_i \omega_i^h n_i z_{l,i}$. Task vectors, noise and all else are
    integrated out.

    The control variates are $u_i = \sum_h \mu_i^h [f_i^h - \omega_i^h n_i (1 - \|p^h\|^2)]$, $f_i^h = \sum_l p_l^h
    z_{l,i}$, and $n_i u_i$: they vary with the loss and have mean zero for all weights, by Stein's lemma.

    **Arguments:**

    - `task`: the tasks, with one context length.
    - `sequences`: how many sequences are drawn, once; at least 32.
    - `control`: whether to subtract the control variates, with coefficients fitted over the sequences (which leaves a
      bias of the order of 1/sequences).
    - `stratified`: whether the norms $n_i$ take one value from each of equally likely intervals, in each of 16 groups
      of sequences.
    - `precision`: of the softmax. "float32" is faster, and keeps six digits of the loss.
    - `key`: the random key that the sequences are drawn from.

    **Example:**

    The `Exact` loss is 0.383.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.MultiTaskRegression(dims=(10,), strengths=0.1, context=50)
    >>> model = sw.models.SpectralAttention.balanced(jnp.array([[0.3]]), jnp.array([[2.0]]), dims=(10,))
    >>> loss = sw.objectives.ReducedSampled(task, 1000, key=jax.random.key(0))
    >>> print(f"{float(loss(model)):.2f} ± {float(loss.standard_error(model)):.3f}")
    0.38 ± 0.003
    """

    task: MultiTaskRegression
    normals: Float[Array, "token task sequences"]
    norms: Float[Array, "task sequences"]
    control: bool = eqx.field(static=True)
    _largest: Float[Array, "task sequences"]

    @checked
    def __init__(
        self,
        task: MultiTaskRegression,
        sequences: int,
        *,
        control: bool = True,
        stratified: bool = True,
        precision: Precision = "float64",
        key: RandomKey,
    ):
        sequences = checks.whole("sequences", sequences, least=2 * _GROUPS)
        checks.one_of("precision", precision, get_args(Precision))
        require(
            task.context.fixed,
            f"the task has {len(task.context.counts)} context lengths; reduced sampling is for one",
        )
        tokens, tasks = task.context.longest, len(task.dims)
        require_memory(
            8 * 6 * sequences * tokens * tasks,
            what=f"{sequences} reduced sequences of {tokens} tokens and {tasks} tasks",
            instead="take fewer sequences",
        )
        self.task = task
        self.control = bool(control)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        normals = rng.standard_normal((tokens, tasks, sequences)).astype(precision)
        self.normals = jnp.asarray(normals)
        self.norms = jnp.asarray(_norms(task.dims, sequences, stratified, rng))
        self._largest = jnp.asarray(np.abs(normals).max(axis=0))
        options = {"control": control, "stratified": stratified, "precision": precision, "key": key}
        remember(self, "ReducedSampled", task=task, sequences=sequences, **options)

    @checked
    def per_sequence(self, model: AbstractModel) -> Float[Array, "task sequences"]:
        """The loss of each task on each sequence."""
        omega, mu = eigenvalues(model, self.task)
        directions = omega[:, :, None] * self.norms
        dtype = self.normals.dtype
        sums = softmax_sums(directions.astype(dtype), self.normals, self._largest)
        first, second = (part.astype(self.norms.dtype) for part in sums)
        answers = jnp.sum(mu[:, :, None] * first, axis=0)
        squares = jnp.einsum("hi,hgs,gi->is", mu, second, mu)
        strengths, dims = (jnp.array(values)[:, None] for values in (self.task.strengths, self.task.dims))
        loss = strengths * (self.norms - answers) ** 2
        loss += (strengths * (dims - 1) + self.task.noise_variance) * squares
        if self.control:
            alone = jnp.einsum("hhs->hs", second)
            surplus = jnp.sum(mu[:, :, None] * (first - directions * (1 - alone[:, None])), axis=0)
            shifts = self.norms - dims**0.5
            sums = control_sums(loss - strengths * self.norms**2, surplus, shifts)
            first, second = (coefficient[:, None] for coefficient in coefficients(sums, self.norms.shape[-1]))
            loss -= (first + second * shifts) * surplus
        return loss

    @checked
    def per_task(self, model: AbstractModel) -> Float[Array, " task"]:
        """The loss of each task."""
        return jnp.mean(self.per_sequence(model), axis=1)

    @checked
    @eqx.filter_jit
    def standard_error(self, model: AbstractModel) -> Float[Array, ""]:
        """The standard error of the loss over other draws, from independent groups of sequences."""
        total = jnp.sum(self.per_sequence(model), axis=0)
        groups = np.array_split(np.arange(total.shape[0]), _GROUPS)
        means = jnp.stack([jnp.mean(total[group]) for group in groups])
        return jnp.std(means, ddof=1) / _GROUPS**0.5

    @checked
    def __call__(self, model: AbstractModel) -> Loss:
        return jnp.sum(self.per_task(model))

    @checked
    def check(self, model: AbstractModel) -> None:
        check_eigenvalues(model, self.task, "softmax")

    @checked
    def floor(self, model: AbstractModel) -> float | None:
        return None


def _norms(dims: tuple[int, ...], sequences: int, stratified: bool, rng: np.random.Generator) -> np.ndarray:
    r"""$\sqrt{\chi^2_{d_i}}$, independent between tasks; stratified within each group, in random order."""
    uniform = rng.random((len(dims), sequences))
    if stratified:
        for row in uniform:
            for group in np.array_split(np.arange(sequences), _GROUPS):
                row[group] = (rng.permutation(group.size) + row[group]) / group.size
    return np.stack([np.sqrt(2 * scipy.special.gammaincinv(d / 2, row)) for row, d in zip(uniform, dims, strict=True)])
