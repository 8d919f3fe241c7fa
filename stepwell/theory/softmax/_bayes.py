"""The least risk of any algorithm, and that of ridge regression."""

import functools
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays

from .._task_protocols import MultiTask
from .._types import PerTask
from ._task_numbers import TaskNumbers, task_numbers

_SPACING = 0.06
"""Spacing of the table of a function, in the logarithm of its argument; the splines on it are of order six."""
_SETTLED = 1e-13
"""Once a function varies by less, relative to its value, further means do not change it."""


class Resolvent(NamedTuple):
    r"""For $X^\top X/L$ with $\gamma = d/L$: `shrinkage` $\alpha m(-\alpha)$, the mean of $\alpha/(e+\alpha)$ over its
    eigenvalues e, and `root` $\sqrt{(1-\gamma+\alpha)^2+4\gamma\alpha}$.
    """

    shrinkage: Float[np.ndarray, " *size"]
    root: Float[np.ndarray, " *size"]


def resolvent(gamma: Float[np.ndarray, " *size"], alpha: Float[np.ndarray, " *size"]) -> Resolvent:
    r"""$m(-\alpha) = [-(1-\gamma+\alpha)+\sqrt{(1-\gamma+\alpha)^2+4\gamma\alpha}]/(2\gamma\alpha)$, stably.

    At α = 0 the shrinkage is the part of the eigenvalues that are zero.
    """
    b = 1 - gamma + alpha
    root = np.sqrt(b**2 + 4 * gamma * alpha)
    total = np.where(b + root == 0, 1.0, b + root)
    return Resolvent(np.where(b >= 0, 2 * alpha / total, (root - b) / (2 * gamma)), root)


Penalized = Literal["mean", "sum"]
r"""What a ridge penalty is added to: the mean $X^\top X/L$ of the squares, or their sum $X^\top X$."""


class RiskEstimate(NamedTuple):
    """A mean over random contexts, and its standard error."""

    mean: PerTask
    standard_error: PerTask


@checked
def bayes_risk(task: MultiTask) -> PerTask:
    r"""Return the risk of the posterior mean of each task, the least of any estimator, in the limit of large d and L.

    It is $\lambda_id_i\,z\,m(-z)$, $z = \sigma^2/(\lambda_iL)$, $\gamma = d_i/L$, with m the Stieltjes transform of the
    Marchenko-Pastur law. Without noise it is $\lambda_i(d_i-L)_+$. At L = 50 it is low by 1 to 4 %;
    `exact_bayes_risk` is exact in d and L.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the expected squared error of each task; the target has no noise.

    **Example:** as many coordinates as pairs, and a signal as strong as the noise.

    >>> task = sw.tasks.MultiTaskRegression((100,), 1.0, 100, noise_variance=1.0, convention="total")
    >>> sw.theory.softmax.bayes_risk(task).round(4).tolist()
    [0.618]
    """
    constants = task_numbers(task)
    z = constants.noise / (constants.strengths * constants.context)
    return constants.signal * resolvent(constants.dims / constants.context, z).shrinkage


@checked
def exact_bayes_risk(task: MultiTask) -> PerTask:
    r"""Return the risk of the posterior mean of each task, the least of any estimator, exact at finite d and L.

    It is $\lambda_id_i\,\mathbb E r$ with $r = [(I + cX^\top X)^{-1}]_{11}$, $c = \lambda_i/\sigma^2$. Rotated along
    its first column, and then along the rest of its first row, a Gaussian X has $\chi_L$ and $\chi_{d-1}$ there and
    below them a Gaussian X' of one row and one column less:

    $r = \frac{1}{1 + c\chi_L^2s}$, $s = \frac{1}{1 + c\chi_{d-1}^2r'}$,

    down to 1 where no row or no column is left. So $\mathbb E r$ is a chain of means over independent $\chi^2$, each
    of a function of one number, on a table with splines between. Relative errors are below 1e-7.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the expected squared error of each task; the target has no noise.

    **Example:** in the limit of large d and L it is 0.618 here (`bayes_risk`).

    >>> for d in (2, 10, 100):
    ...     task = sw.tasks.MultiTaskRegression((d,), 1.0, d, noise_variance=1.0, convention="total")
    ...     print(sw.theory.softmax.exact_bayes_risk(task).round(4).tolist())
    [0.6448]
    [0.6251]
    [0.6188]
    """
    constants = task_numbers(task)
    if constants.noise == 0:
        return constants.strengths * np.maximum(constants.dims - constants.context, 0)
    left = [
        _unexplained(float(lam / constants.noise), int(d), constants.context)
        for lam, d in zip(constants.strengths, constants.dims, strict=True)
    ]
    return constants.signal * np.array(left)


@functools.lru_cache(256)
def _unexplained(c: float, dim: int, context: int) -> float:
    r"""$\mathbb E[(I + cX^\top X)^{-1}]_{11}$, from the last mean of the chain, over $\chi^2_L$, to the first."""
    freedoms = [context, *(freedom for k in range(1, min(dim, context + 1)) for freedom in (dim - k, context - k))]
    most = max(_chi_square_rule(freedom, c)[0][-1] for freedom in (context, max(dim - 1, 1)))
    grid = np.linspace(-np.log1p(c * most), 0.0, 8 + int(np.log1p(c * most) / _SPACING))
    values = np.exp(grid)
    for freedom in freedoms:
        if freedom == 0 or np.ptp(values) <= _SETTLED * values[-1]:
            break
        nodes, weights = _chi_square_rule(freedom, c)
        table = scipy.interpolate.make_interp_spline(grid, values, k=5)
        values = table(-np.log1p(c * np.exp(grid)[:, None] * nodes)) @ weights
    return float(values[-1])


def _chi_square_rule(freedom: int, c: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Nodes and weights of the mean over $\chi^2_f$ of a function of $1 + c\chi^2$, which may be steep down to 1/c.

    The trapezoidal rule in $u = \ln(\chi^2/f)$, of density $\propto e^{f(u - e^u)/2}$: its error is exponential in
    1/h. It ends on either side where the density is below $e^{-T}$ of its height, $T = 23 + \ln(1 + cf)$.
    """
    edge = -np.exp(-1 - 2 * (23 + np.log1p(c * freedom)) / freedom)
    low, high = (np.log(-scipy.special.lambertw(edge, branch).real) for branch in (0, -1))
    step = 0.4 * min(1.0, np.sqrt(2 / freedom))
    u = np.linspace(low, high, 2 + int((high - low) / step))
    weights = np.exp(freedom / 2 * (u - np.expm1(u)))
    return freedom * np.exp(u), weights / weights.sum()


@checked
def ridge_risk(task: MultiTask, penalty: float, *, penalized: Penalized) -> PerTask:
    r"""Return the risk of ridge regression on the coordinates of each task, in the limit of large d and L.

    With $\hat g = (X^\top X/L+\alpha I)^{-1}X^\top y/L$, $m = m(-\alpha)$, $m_2 = -\partial_\alpha m$ it is
    $\lambda d\,\alpha^2m_2 + \sigma^2\gamma(m-\alpha m_2)$. Near d = L with a small penalty, finite sizes matter:
    use `sampled_ridge_risk` there.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `penalty`: the ridge penalty, at least 0.
    - `penalized`: what the penalty is added to: `"mean"`, $X^\top X/L$, so that α is the penalty, or `"sum"`,
      $X^\top X$, so that α is the penalty over L.

    **Returns:** the expected squared error of each task; the target has no noise.

    **Example:** at d = L a small penalty is worse than the prediction 0, whose risk is 1 here. The penalty
    $\sigma^2/\lambda L = 1$ gives `bayes_risk`.

    >>> task = sw.tasks.MultiTaskRegression((100,), 1.0, 100, noise_variance=1.0, convention="total")
    >>> for penalty in (0.05, 1.0, 5.0):
    ...     print(sw.theory.softmax.ridge_risk(task, penalty, penalized="mean").round(4).tolist())
    [1.8889]
    [0.618]
    [0.7671]
    """
    constants = task_numbers(task)
    gamma, alpha = constants.dims / constants.context, _alpha(constants, penalty, penalized)
    shrinkage, root = resolvent(gamma, np.full_like(gamma, alpha))
    # m_2 from the derivative of the quadratic for m; at the one pole, d = L without penalty, only noise diverges.
    pole = root == 0
    safe = np.where(pole, 1.0, root)
    variance = np.where(pole, np.inf if constants.noise > 0 else 0.0, constants.noise * gamma * (1 - shrinkage) / safe)
    return constants.signal * shrinkage * (gamma * shrinkage + alpha) / safe + variance


@checked
def sampled_bayes_risk(task: MultiTask, samples: int, *, rng: np.random.Generator) -> RiskEstimate:
    r"""Return the risk of the posterior mean at finite d and L, by sampling contexts.

    It is the mean over X of $\lambda\,\mathrm{tr}(I+\lambda X^\top X/\sigma^2)^{-1}$: that of ridge regression with the
    penalty $\sigma^2/\lambda$ on the sum. Without noise it is $\lambda_i(d_i-L)_+$ in every context.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `samples`: the number of contexts X drawn for each task, at least 2.
    - `rng`: NumPy's generator of random numbers.

    **Returns:** `RiskEstimate` with the `mean` risk of each task and its `standard_error`.

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((10,), 1.0, 10, noise_variance=1.0, convention="total")
    >>> estimate = sw.theory.softmax.sampled_bayes_risk(task, 500, rng=np.random.default_rng(0))
    >>> print(f"{estimate.mean[0]:.3f} ± {estimate.standard_error[0]:.3f}")
    0.625 ± 0.001
    """
    constants = task_numbers(task)
    return _sampled(constants, constants.noise / (constants.strengths * constants.context), samples, rng)


@checked
def sampled_ridge_risk(
    task: MultiTask, penalty: float, samples: int, *, penalized: Penalized, rng: np.random.Generator
) -> RiskEstimate:
    r"""Return the risk of ridge regression at finite d and L, by sampling contexts.

    It is the mean over X of $\sum_e[\lambda\alpha^2 + \sigma^2e/L]/(e+\alpha)^2$ over the eigenvalues e of
    $X^\top X/L$. With a penalty of 0 it is the risk of the least-squares solution of least norm.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `penalty`: the ridge penalty, at least 0.
    - `samples`: the number of contexts X drawn for each task, at least 2.
    - `penalized`: what the penalty is added to, `"mean"` or `"sum"`; see `ridge_risk`.
    - `rng`: NumPy's generator of random numbers.

    **Returns:** `RiskEstimate` with the `mean` risk of each task and its `standard_error`.

    **Example:**

    >>> task, rng = sw.tasks.MultiTaskRegression((10,), context=20, noise_variance=1.0), np.random.default_rng(0)
    >>> estimate = sw.theory.softmax.sampled_ridge_risk(task, 1.0, 500, penalized="sum", rng=rng)
    >>> print(f"{estimate.mean[0]:.2f} ± {estimate.standard_error[0]:.2f}")
    0.90 ± 0.01
    """
    constants = task_numbers(task)
    return _sampled(constants, np.full_like(constants.dims, _alpha(constants, penalty, penalized)), samples, rng)


def _alpha(constants: TaskNumbers, penalty: float, penalized: Penalized) -> float:
    penalty = checks.number("penalty", penalty, least=0.0)
    return penalty / (constants.context if checks.one_of("penalized", penalized, get_args(Penalized)) == "sum" else 1)


def _sampled(constants: TaskNumbers, alphas: PerTask, samples: int, rng: np.random.Generator) -> RiskEstimate:
    """The risk with these penalties on the mean of squares: mean and standard error over contexts X."""
    if checks.whole("samples", samples) < 2:
        raise InvalidInput("samples is 1; a standard error needs at least 2")
    require_arrays((samples, int(max(constants.dims))), what=f"{samples} samples", instead="take fewer")
    means, errors = [], []
    for d, lam, alpha in zip(constants.dims.astype(int), constants.strengths, alphas, strict=True):
        squares = np.zeros((samples, d))
        for row in squares:
            x = rng.standard_normal((constants.context, d))
            row[: min(d, constants.context)] = np.linalg.svd(x, compute_uv=False) ** 2 / constants.context
        below = np.where(squares + alpha == 0, 1.0, squares + alpha)
        left = np.where(squares + alpha == 0, 1.0, alpha / below)
        drawn = np.sum(lam * left**2 + constants.noise / constants.context * squares / below**2, axis=1)
        means.append(drawn.mean())
        errors.append(drawn.std(ddof=1) / samples**0.5)
    return RiskEstimate(np.array(means), np.array(errors))
