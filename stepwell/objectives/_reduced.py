"""The loss of decomposable softmax attention over samples of what matters of a sequence."""

from collections.abc import Callable
from typing import Any, get_args

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

from ._abstract_objective import AbstractObjective, require
from ._model_checks import check_eigenvalues, eigenvalues, with_plain_target

CONTROL_SUMS = 8
"""How many sums a control variate needs of each task."""
_NOTHING = 1e-100
"""Added to denominators that may be zero."""


Values = Float[Array, "task sequences"]


def control_sums(loss: Values, surplus: Values, shifts: Values) -> Float[Array, "task 8"]:
    r"""$\sum_s (l, u, cu, u^2, cu^2, c^2u^2, lu, lcu)$: `loss` is l, `surplus` u, `shifts` c."""
    u, cu = surplus, shifts * surplus
    terms = (loss, u, cu, u * u, cu * u, cu * cu, loss * u, loss * cu)
    return jnp.stack([jnp.sum(term, axis=1) for term in terms], axis=1)


def coefficients(sums: Float[Array, "task 8"], sequences: int) -> tuple[Float[Array, " task"], Float[Array, " task"]]:
    r"""a, b of the least squares $l - \bar l \approx a u + b c u$, where $u$ and $cu$ have mean zero over all draws.

    $cu$ is first made orthogonal to $u$. Where u is zero, as for a task that no head serves, so are a and b.
    """
    loss, u, cu, uu, cuu, ccuu, lu, lcu = sums.T
    lu, lcu = lu - loss * u / sequences, lcu - loss * cu / sequences
    along = cuu / (uu + _NOTHING)
    second = (lcu - along * lu) / (ccuu - along * cuu + _NOTHING)
    return lu / (uu + _NOTHING) - along * second, second


@checked
def controlled_mean(sums: Float[Array, "task 8"], sequences: int) -> Float[Array, " task"]:
    r"""Return the mean loss of each task, less that of its fit by the control variate.

    The variates are u and cu, which have mean zero over all draws. The loss l of a sequence is fitted by least squares,
    $l - \bar l \approx a u + b c u$, and the mean of the fit is subtracted. What is left has a smaller variance and,
    since a and b are fitted to the same sequences, a bias of the order of 1/sequences.

    **Arguments:**

    - `sums`: $\sum_s (l, u, cu, u^2, cu^2, c^2u^2, lu, lcu)$ over the sequences, of each task: shape (task, 8).
    - `sequences`: how many sequences were summed over.

    **Returns:** the mean losses, of shape (task,).

    **Example:**

    The loss is 1 + 2u, so its mean over all draws is 1. In this sample u has mean ½ and the loss has mean 2; the
    control variate (with c = 0) takes most of that back.

    >>> u = jnp.array([1.0, -1.0, 2.0, 0.0])
    >>> loss, none = 1 + 2 * u, 0 * u
    >>> sums = jnp.stack([loss, u, none, u * u, none, none, loss * u, none]).sum(axis=1)[None]
    >>> sw.objectives.controlled_mean(sums, sequences=4).round(3).tolist()
    [1.167]
    """
    first, second = coefficients(sums, sequences)
    return (sums[:, 0] - first * sums[:, 1] - second * sums[:, 2]) / sequences


@jax.custom_vjp
def softmax_sums(
    directions: Float[Array, "head task sequences"],
    normals: Float[Array, "token task sequences"],
    largest: Float[Array, "task sequences"],
) -> tuple[Float[Array, "head task sequences"], Float[Array, "head head sequences"]]:
    r"""$f_i^h = \sum_l p_l^h z_{l,i}$ and $g^{hk} = \sum_l p_l^h p_l^k$.

    $p^h = \mathrm{softmax}_l \sum_i w_i^h z_{l,i}$; `directions` is w, `normals` z and `largest` $\max_l |z_{l,i}|$,
    which bounds the scores. Sequences come last, where arithmetic is vectorized. Only w has a gradient.
    """
    return _forward(directions, normals, largest)[0]


# Sums over heads and tasks are written out, and those over tokens are loops: reductions are several times slower.


def _forward(directions: Array, normals: Array, largest: Array) -> tuple[Any, Any]:
    bound = _combined(jnp.abs(directions), lambda i: largest[i])
    exponentials = jnp.exp(_combined(directions, lambda i: normals[:, i, None]) - bound)
    total = _contract(exponentials, jnp.ones_like(normals[:, :1]))
    first = _contract(exponentials, normals) / total
    second = _contract(exponentials, _again(exponentials)) / (total * total[:, 0])
    return (first, second), (normals, largest, total, first, second, exponentials)


def _backward(kept: Any, cotangents: Any) -> tuple[Array, Array, Array]:
    r"""$\bar s_l^h = p_l^h (\bar p_l^h - \sum_m p_m^h \bar p_m^h)$, $\bar p_l^h = \sum_i \bar f_i^h z_{l,i} + \sum_k
    (\bar g^{hk} + \bar g^{kh}) p_l^k$: the sum over m needs no tokens, only f and g."""
    normals, largest, total, first, second, exponentials = kept
    df, dg = cotangents
    dg = dg + dg.swapaxes(0, 1)
    mean = (_combined(df, lambda i: first[:, i]) + _combined(dg, lambda k: second[:, k])) / total[:, 0]
    df, dg = df / total, dg / (total * total[:, 0])
    others = _again(exponentials)

    def score(token):  # for all tokens at once, df and dg would be computed anew for each of them
        slope = _combined(df, lambda i: normals[token, i]) + _combined(dg, lambda k: others[token, k])
        return exponentials[token] * (slope - mean)

    scores = jax.lax.map(score, jnp.arange(normals.shape[0]))
    return _contract(scores, normals), jnp.zeros_like(normals), jnp.zeros_like(largest)


softmax_sums.defvjp(_forward, _backward)


def _combined(coefficients: Float[Array, "head part sequences"], part: Callable[[int], Array]) -> Array:
    """The sum of parts with these coefficients."""
    return sum(coefficients[:, k] * part(k) for k in range(coefficients.shape[1]))  # pyright: ignore


def _contract(
    left: Float[Array, "token left sequences"], right: Float[Array, "token right sequences"]
) -> Float[Array, "left right sequences"]:
    """The sum over tokens."""

    def add(token, total):
        return total + left[token][:, None] * right[token]

    shape = (left.shape[1], right.shape[1], left.shape[2])
    return jax.lax.fori_loop(0, left.shape[0], add, jnp.zeros(shape, left.dtype))


def _again(array: Array) -> Array:
    """The same array, but the compiler does not know: what it reads once to use twice, it does not vectorize."""
    return jax.lax.optimization_barrier(array)


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
        self.task = with_plain_target(task)
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
        """Return the loss of each task on each sequence."""
        omega, mu = eigenvalues(model, self.task)
        directions = omega[:, :, None] * self.norms
        dtype = self.normals.dtype
        sums = softmax_sums(directions.astype(dtype), self.normals, self._largest)
        first, second = (part.astype(self.norms.dtype) for part in sums)
        predictions = jnp.sum(mu[:, :, None] * first, axis=0)
        squares = jnp.einsum("hi,hgs,gi->is", mu, second, mu)
        strengths, dims = (jnp.array(values)[:, None] for values in (self.task.strengths, self.task.dims))
        loss = strengths * (self.norms - predictions) ** 2
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
        """Return the loss of each task."""
        return jnp.mean(self.per_sequence(model), axis=1)

    @checked
    @eqx.filter_jit
    def standard_error(self, model: AbstractModel) -> Float[Array, ""]:
        """Return the standard error of the loss over other draws, from independent groups of sequences."""
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
