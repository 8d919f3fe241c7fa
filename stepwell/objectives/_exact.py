"""The loss of decomposable softmax attention without approximation, one head for each task or several for one."""

import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float
from numpy.polynomial import chebyshev

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.recipes import remember
from stepwell._util.types import Loss
from stepwell.models import AbstractModel, is_spectral
from stepwell.tasks import MultiTaskRegression

from ._abstract_objective import AbstractObjective, require
from ._head_moments import head_moments, query_norms
from ._model_checks import check_eigenvalues, eigenvalues, with_plain_target

_BEYOND = 1e-9
"""The probability at most that a head is sharper than the table reaches."""
_NODES, _LEAST_NODES = 2.4, 48
"""Chebyshev nodes of a table for each unit of reach, and at least: its error is then about 1e-9."""
_MODES = 4.8
"""Frequencies of the series for each unit of reach."""
_LEFT_OUT = 1e-12
"""What the grids of an integral leave out."""
_LOG_STEP = 0.35
"""In log t. The trapezoidal rule errs by about exp(-pi^2 / step), which is 6e-13."""
_BLOCK = 2**18
"""Numbers worked on at a time: they stay in the cache."""


class QueryMeans(eqx.Module):
    r"""$\mathbb E\, G(a^2)$ for $a^2 = \sum_j s_j n_j$, $n_j \sim \chi^2_{d_j}$, and two functions of the sharpness a:

    `concentration` R and `spread` $(T - R)/a^2 - 1$ (see `Exact`), the rows of what is returned.

    Each G is a Fourier series on [0, `reach`], with a period of twice that so that it need not be periodic itself:
    $G(x) = \mathrm{Re} \sum_k c_k e^{i\theta_k x}$. The mean of an exponential is a product over blocks,
    $\prod_j (1 - 2i\theta_k s_j)^{-d_j/2}$, whatever their number.
    """

    frequencies: Float[Array, " mode"]
    cosines: Float[Array, "2 mode"]
    sines: Float[Array, "2 mode"]

    def __call__(self, scales: Float[Array, "... block"], dims: Float[Array, "... block"]) -> Float[Array, "2 ..."]:
        doubled = 2 * self.frequencies * scales[..., None]
        size = jnp.exp(-jnp.sum(dims[..., None] / 4 * jnp.log1p(doubled**2), axis=-2))
        phase = jnp.sum(dims[..., None] / 2 * jnp.arctan(doubled), axis=-2)
        waves = size * jnp.cos(phase), size * jnp.sin(phase)
        return jnp.einsum("gm,...m->g...", self.cosines, waves[0]) + jnp.einsum("gm,...m->g...", self.sines, waves[1])


class Exact(AbstractObjective):
    r"""The exact loss of decomposable softmax attention: one task and any heads, or one head at most for each task.

    $L = \sum_i S_i \big[(1 - c_i)^2 + 2 c_i \langle R \rangle_i
    + c_i^2 \langle \tfrac{T - R}{a^2} - 1 \rangle_i\big] + \mu_i^2 (S_i + \sigma^2) \langle R \rangle$, over all tasks.

    At any length and dimension; $c_i = \mu_i \omega_i$. $R = \mathbb E\sum_l p_l^2$ and
    $T = \mathbb E(\sum_l p_l z_l)^2$ are moments of the weights $p = \mathrm{softmax}(a z)$ of L Gaussians z at
    sharpness $a^2 = \sum_j \omega_j^2 n_j$, $n_j \sim \chi^2_{d_j}$; $\langle \cdot \rangle$ is the mean over the
    query, $\langle \cdot \rangle_i$ that with two more degrees of freedom in $n_i$, which is what a factor $n_i/d_i$
    amounts to. Relative errors are below 1e-6.

    One task may have several heads, of either sign. Their scores are along one Gaussian, at sharpness
    $a_h = \omega_h |q|$, and with $R_{hg} = \mathbb E\sum_l p_l^h p_l^g$,
    $T_{hg} = \mathbb E\sum_l p_l^h z_l \sum_l p_l^g z_l$ the loss is

    $L = \mathbb E_q\big\{\lambda\big[|q|^2 - 2|q| \sum_h \mu_h a_h (1 - R_{hh}) + \mu^\top (T + (d-1) R) \mu\big]
    + \sigma^2 \mu^\top R \mu\big\}$.

    Of several tasks each must have $\mu_i^h \ne 0$ for one head h at most; a head may serve several. Weights that make
    a $\mu_i^h$ of zero must both be zero, and then stay so: with two heads the gradient would need moments of both.

    **Arguments:**

    - `task`: the tasks, with one context length.
    - `reach`: the largest $a^2$ that is tabled, from 10 to 240; 60 by default. For weights that are sharper the loss is
      not a number. The table for several heads takes some seconds at 60, and less than one at 10.

    **Example:**

    The loss is 1 before training, the signal $S = \lambda d$. A small `reach` is enough here, and is tabled faster.

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
        self.task = with_plain_target(task)
        self.reach = checks.number("reach", reach, least=10.0, most=240.0)
        self._means = query_means(task.context.longest, self.reach)
        remember(self, "Exact", task=task, reach=self.reach)

    @checked
    def per_task(self, model: AbstractModel) -> Float[Array, " task"]:
        """Return the loss of each task."""
        omega, mu = eigenvalues(model, self.task)
        if len(self.task.dims) == 1 and len(omega) > 1:
            return self._of_one_task(omega[:, 0], mu[:, 0])[None]
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

    def _of_one_task(self, omega: Float[Array, " head"], mu: Float[Array, " head"]) -> Float[Array, ""]:
        (dim,), strength = self.task.dims, self.task.strengths[0]
        largest = float(_sharpest(np.ones((1, 1)), self.task.dims, np)[0]) ** 0.5
        norms, weights = query_norms(dim, largest)
        a = omega * norms[:, None]
        overlap, second = head_moments(self.task.context.longest, self.reach)(a)
        along = jnp.sum(mu * a * (1 - jnp.sum(overlap**2, axis=-1)), axis=1)
        concentration, spread = (jnp.sum(jnp.einsum("h,qhk->qk", mu, part) ** 2, axis=1) for part in (overlap, second))
        bias = strength * (spread - 2 * norms * along)
        noise = (strength * (dim - 1) + self.task.noise_variance) * concentration
        return strength * dim + jnp.sum(weights * (bias + noise))

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
            len(heads_per_task) == 1 or bool(np.all(heads_per_task <= 1)),
            f"task {int(np.argmax(heads_per_task > 1)) + 1} is served by several heads, and the exact loss of several "
            "tasks is known for one; set the other heads' value and output for it to 0, or use ReducedSampled",
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


@functools.lru_cache(maxsize=32)
def query_means(context: int, reach: float) -> QueryMeans:
    r"""The means for one context length, good as long as $a^2$ exceeds `reach` with a probability of next to nothing.

    The functions follow from $m_k(a) = \mathbb E\sum_l p_l z_l^k$, $p = \mathrm{softmax}(a z)$: by Stein's lemma
    $m_1 = a(1 - R)$, and $dm_1/da = m_2 - T$, so that with $x = a^2$

    $R = 1 - m_1/a$ and $(T - R)/x - 1 = (m_2 - 1)/x - 1 + 2\, dR/dx$.

    `theory.softmax.softmax_moments` integrates R and T themselves: the two routes check each other.
    """
    nodes, modes = max(_LEAST_NODES, int(np.ceil(_NODES * reach))), int(np.ceil(_MODES * reach))
    points = _chebyshev_points(nodes)
    x = (points + 1) * reach / 2
    first, second = np.array([_weighted_means(a, context) for a in np.sqrt(x)]).T
    concentration = chebyshev.chebfit(points, 1 - first / np.sqrt(x), nodes - 1)
    slope = chebyshev.chebval(points, chebyshev.chebder(concentration)) * 2 / reach
    spread = chebyshev.chebfit(points, (second - 1) / x - 1 + 2 * slope, nodes - 1)
    dense = _chebyshev_points(4 * modes)
    frequencies = np.pi / reach * np.arange(modes)
    angles = np.outer((dense + 1) * reach / 2, frequencies)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    table = np.stack([chebyshev.chebval(dense, part) for part in (concentration, spread)], axis=1)
    # More waves than the interval can tell apart: least squares takes the smallest coefficients.
    solution = scipy.linalg.lstsq(waves, table, cond=1e-13, lapack_driver="gelsy")
    assert solution is not None
    cosines, sines = np.split(solution[0].T, 2, axis=1)
    return QueryMeans(*(jnp.asarray(part) for part in (frequencies, cosines, sines)))


def _weighted_means(a: float, context: int) -> tuple[float, float]:
    r"""$m_1$ and $m_2$ at sharpness a: $m_k = L\int_0^\infty \mathbb E[z^k e^{az - te^{az}}]\, C^{L-1} dt$ with
    $C(t) = \mathbb E e^{-te^{az}}$, since $1/Z = \int e^{-tZ} dt$.

    Both integrals, over z and over log t, are trapezoidal sums, which converge geometrically.
    """
    far = -float(scipy.special.ndtri(_LEFT_OUT / context))
    z = np.linspace(-far, far, 2 * int(np.ceil(far / min(0.3, _LOG_STEP / a))) + 1)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    # Small t leave out t E[Z], and Z is e^{a max z} at least, whose maximum is hardly ever below `low`.
    low = float(scipy.special.ndtri((_LEFT_OUT / context) ** (1 / context)))
    begin = np.log(_LEFT_OUT / context) - min(a**2 / 2, a * far)
    log_t = np.arange(begin, np.log(-2 * np.log(_LEFT_OUT)) - a * low, _LOG_STEP)
    powers = np.stack([density * z, density * z**2], axis=1)
    total = np.zeros(2)
    for part in np.array_split(log_t, 1 + log_t.size * z.size // _BLOCK):
        tilt = np.exp(np.minimum(part[:, None] + a * z, 700.0))
        lost = -np.expm1(-tilt)
        others = np.exp((context - 1) * np.log1p(-np.minimum(lost @ density, 1.0 - 1e-16)))
        total += context * _LOG_STEP * others @ ((tilt * (1 - lost)) @ powers)
    return float(total[0]), float(total[1])


def _chebyshev_points(count: int) -> Float[np.ndarray, " point"]:
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)
