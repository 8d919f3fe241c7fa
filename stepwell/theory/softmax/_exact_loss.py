"""The exact loss at finite context and dimension, how good approximations are, and other context lengths at test."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import MultiTask
from .._types import HeadTask, PerTask
from ._limits import SingleHead, flow_limit
from ._losses import first_order_loss, spectral_loss
from ._softmax_weights import softmax_moments
from ._task_numbers import TaskNumbers, require_weights, task_numbers

_SIZES = (0.2, 100.0)
"""Where the ω√d of least loss is searched. It is 16 at the most: at L = 2 and d = 1, without noise."""

Function = Callable[[Float[np.ndarray, " node"]], Float[np.ndarray, "value node"]]

_LEFT_OUT = 1e-10
"""Probability beyond either end of a rule."""

_SPACING = 0.12
"""Spacing of the table of a function, in the logarithm of its argument; the splines on it are of order six."""

_SMALLEST = 1e-9
"""Where a table begins, as part of the mean of its argument: below, a function is its value there."""


def mean_over_chi_squares(
    function: Function, scales: Float[np.ndarray, " term"], freedoms: Float[np.ndarray, " term"]
) -> Float[np.ndarray, " value"]:
    r"""$\mathbb E f(\sum_j s_j\chi^2_{\nu_j})$ for $s_j > 0$ and a smooth bounded f of a positive number.

    Terms are taken one by one: $f(s) \leftarrow \mathbb E f(s + s_j\chi^2_{\nu_j})$ on a table in log s, with splines
    between. The last term, often the only one, needs no table.
    """
    rules = [chi_square_rule(freedom) for freedom in freedoms]
    lowest = np.log(_SMALLEST * float(scales @ freedoms))
    highest = np.log(sum(scale * nodes[-1] for scale, (nodes, _) in zip(scales, rules, strict=True)))
    grid = np.linspace(lowest, highest, 2 + int((highest - lowest) / _SPACING))
    for scale, (nodes, weights) in zip(scales[1:], rules[1:], strict=True):
        table = scipy.interpolate.make_interp_spline(grid, function(np.exp(grid)), k=5, axis=1)
        function = _folded(table, grid, scale * nodes, weights)
    nodes, weights = rules[0]
    return function(scales[0] * nodes) @ weights


def chi_square_rule(freedom: float) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    r"""Nodes and weights for $\chi^2_\nu$: the trapezoidal rule in its logarithm, with its density.

    It converges geometrically for functions with a scale of their own, whatever that scale is, where the Gauss rule of
    Laguerre wants them smooth on the scale of 1.
    """
    low, high = 2 * scipy.special.gammaincinv(freedom / 2, _LEFT_OUT), scipy.special.chdtri(freedom, _LEFT_OUT)
    step = min(0.25, 0.5 * (2 / freedom) ** 0.5)
    log = np.arange(np.log(low), np.log(high) + step, step)
    density = freedom / 2 * log - np.exp(log) / 2
    weights = np.exp(density - density.max())
    return np.exp(log), weights / weights.sum()


def _folded(table, grid: np.ndarray, shifts: np.ndarray, weights: np.ndarray) -> Function:
    def folded(s: np.ndarray) -> np.ndarray:
        return table(np.clip(np.log(s[:, None] + shifts), grid[0], grid[-1])) @ weights

    return folded


@checked
def exact_loss(task: MultiTask, omega: HeadTask, mu: HeadTask, *, context: int | None = None) -> PerTask:
    r"""Return the loss of each task, exact at finite L and $d_i$, where each is served by one head at most.

    $\ell_i = \mathbb E_n\big\{\lambda_i\big[n_i - 2\mu_i\omega_in_i(1-R)
    + \mu_i^2\big(\tfrac{\omega_i^2n_i}{a^2}(T-R) + d_iR\big)\big] + \sigma^2\mu_i^2R\big\}$,
    $n_j\sim\chi^2_{d_j}$, $a^2 = \sum_j\omega_j^2n_j$,

    with ω of the head that serves task i, and R, T at sharpness a (`softmax_moments`). A head may serve
    several tasks and have scores on any of them.

    $\mathbb E[n_if(a^2)]$ is $d_i$ times the mean of f with two more degrees of freedom in $n_i$, so only means of
    functions of $a^2$ are needed. Relative errors are below 1e-7.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (head, task), as in `spectral_loss`; for each task at most one μ is not 0.
    - `context`: the context length at test; by default that of the task.

    **Returns:** the expected squared error of each task; the target has no noise. Of a task without a head it is
    $\lambda_id_i$.

    **Example:** the weights where training ends, whose spectral loss is 2.137.

    >>> theory, task = sw.theory.softmax, sw.tasks.MultiTaskRegression((10,), context=100)
    >>> theory.exact_loss(task, *map(np.diag, theory.flow_limit(task))).round(3).tolist()
    [2.355]
    """
    require_weights(task, omega, mu)
    constants = task_numbers(task)
    if context is not None:
        constants = constants._replace(context=checks.whole("context", context))
    shared = np.count_nonzero(mu, axis=0) > 1
    if np.any(shared):
        raise InvalidInput(
            f"task {int(np.argmax(shared)) + 1} is served by several heads; the exact loss is known for one: set the "
            "others' mu to 0, use exact_heads if there is one task, or sample the loss with stepwell.objectives"
        )
    loss = constants.signal.copy()
    for i, h in zip(*np.nonzero(mu.T), strict=True):
        loss[i] = _served(constants, omega[h], int(i)).loss(float(mu[h, i]))
    return loss


@checked
def exact_optimum(task: MultiTask) -> SingleHead:
    r"""Return the least exact loss of a head that serves one task alone, for each task.

    The loss is quadratic in μ, so only ω is searched, in $0.2 < \omega_i\sqrt{d_i} < 100$. To leading order it is
    $d_i^{-1/2}$ (`flow_limit`); the fewer pairs there are, the sharper is the best attention. With a single pair there
    is nothing to choose: its softmax weight is 1 whatever ω, and its label, as often of the wrong sign, is not used.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.

    **Returns:** the `SingleHead`, with the exact loss. At L = 1 `omega` is not a number, `mu` is 0, and the `loss` is
    $\lambda_id_i$.

    **Example:** with many pairs and few coordinates the best ω is below $d^{-1/2} = 0.316$.

    >>> best = sw.theory.softmax.exact_optimum(sw.tasks.MultiTaskRegression((10,), context=1000))
    >>> best.omega.round(3).tolist(), best.loss.round(3).tolist()
    ([0.283], [0.314])
    """
    constants = task_numbers(task)
    if constants.context == 1:
        return SingleHead(np.full_like(constants.dims, np.nan), np.zeros_like(constants.dims), constants.signal)
    omega, mu, loss = np.empty((3, len(constants.dims)))
    for i, d in enumerate(constants.dims):

        def alone(log_size: float, i: int = i, d: float = d) -> _Served:
            row = np.zeros_like(constants.dims)
            row[i] = np.exp(log_size) * d**-0.5
            return _served(constants, row, i)

        def least(log_size: float, alone=alone) -> float:
            served = alone(log_size)
            return served.loss(served.best_mu)

        best = alone(scipy.optimize.minimize_scalar(least, bounds=np.log(_SIZES), method="bounded").x)
        omega[i], mu[i], loss[i] = best.omega, best.best_mu, best.loss(best.best_mu)
    return SingleHead(omega, mu, loss)


class _Served(NamedTuple):
    r"""What a head's scores mean for one task.

    `overlap` is $\mathbb ER$. With $n_i$ size-biased, `missed` is $\mathbb ER$, the part of w that Xp lacks, and
    `spread` is $\mathbb E[(T-R)/a^2]-1$. All three vanish as 1/L, so that nothing cancels in the loss.
    """

    signal: float
    noise: float
    omega: float
    overlap: float
    missed: float
    spread: float

    @property
    def curvature(self) -> float:
        return (self.signal + self.noise) * self.overlap + self.signal * self.omega**2 * self.spread

    @property
    def best_mu(self) -> float:
        return self.signal * self.omega * (1 - self.missed) / (self.curvature + self.signal * self.omega**2)

    def loss(self, mu: float) -> float:
        c = mu * self.omega
        return self.signal * ((1 - c) ** 2 + 2 * c * self.missed) + mu**2 * self.curvature


def _served(constants: TaskNumbers, omega: np.ndarray, i: int) -> _Served:
    def moments(s: np.ndarray) -> np.ndarray:
        r, t = softmax_moments(np.sqrt(s), constants.context)
        return np.stack([r, (t - r) / s - 1])

    active = omega != 0
    scales, freedoms = omega[active] ** 2, constants.dims[active]
    overlap = mean_over_chi_squares(moments, scales, freedoms)[0] if np.any(active) else 1 / constants.context
    missed, spread = 0.0, 0.0
    if omega[i] != 0:
        missed, spread = mean_over_chi_squares(moments, scales, freedoms + 2.0 * (np.flatnonzero(active) == i))
    return _Served(constants.signal[i], constants.noise, omega[i], float(overlap), float(missed), float(spread))


class ApproximationErrors(NamedTuple):
    r"""At `flow_limit`, for each task: losses over $\lambda_id_i$ by each theory, and relative errors.

    `best_omega` is ω√d and `best_mu` is μ over that of `flow_limit`, where the exact loss is least.
    """

    spectral: PerTask
    first_order: PerTask
    exact: PerTask
    spectral_error: PerTask
    first_order_error: PerTask
    best_omega: PerTask
    best_mu: PerTask


@checked
def approximation_errors(task: MultiTask) -> ApproximationErrors:
    r"""Return the losses of each task at `flow_limit` by the three theories, and the errors of the approximate ones.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
      Dimensions must be at least 3, since `first_order_loss` does not exist below.

    **Returns:** the `ApproximationErrors`.

    **Example:** at L = 100 the spectral loss is too low by 9 %.

    >>> errors = sw.theory.softmax.approximation_errors(sw.tasks.MultiTaskRegression((10,), context=100))
    >>> print(f"{errors.spectral[0]:.3f} {errors.exact[0]:.3f} {errors.spectral_error[0]:.1%}")
    0.214 0.235 -9.2%
    """
    limit, best, signal = flow_limit(task), exact_optimum(task), task_numbers(task).signal
    heads = [np.diag(weights) for weights in limit]
    spectral, first_order, exact = (loss(task, *heads) for loss in (spectral_loss, first_order_loss, exact_loss))
    losses = spectral / signal, first_order / signal, exact / signal
    errors = spectral / exact - 1, first_order / exact - 1
    return ApproximationErrors(*losses, *errors, best.omega / limit.omega, best.mu / limit.mu)


DividedBy = Literal["test", "train"]
"""The context length that linear attention is divided by: that of the test, or for ever that of the training."""


@checked
def softmax_length_loss(task: MultiTask, contexts: Sequence[int]) -> Float[np.ndarray, "length task"]:
    r"""Return the spectral loss of `flow_limit` at other context lengths than that of training.

    $S_i\big[(\tfrac{\rho_i}{1+\rho_i})^2 + \tfrac{\rho_i}{(1+\rho_i)^2}\tfrac L{L'}\big]$ at length L', with $\rho_i$
    at the task's L. Softmax weights add up to one at any length: the loss falls to a plateau and never grows.

    **Arguments:**

    - `task`: the regressions, a `MultiTask`; its context length L is that of the training.
    - `contexts`: the context lengths L' of the test.

    **Returns:** the loss (length, task).

    **Example:** trained at 100 pairs.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> sw.theory.softmax.softmax_length_loss(task, [50, 100, 1000, 10**6])[:, 0].round(3).tolist()
    [4.074, 2.302, 0.707, 0.53]
    """
    constants, lengths = task_numbers(task), _lengths(contexts)
    rho = constants.rho
    return constants.signal * ((rho / (1 + rho)) ** 2 + rho / (1 + rho) ** 2 * constants.context / lengths)


@checked
def exact_length_loss(task: MultiTask, contexts: Sequence[int]) -> Float[np.ndarray, "length task"]:
    """Return the `exact_loss` of `flow_limit` at other context lengths than that of training.

    The weights are those of the limit at the task's own length, one head for each task.

    **Arguments:**

    - `task`: the regressions, a `MultiTask`; its context length L is that of the training.
    - `contexts`: the context lengths L' of the test.

    **Returns:** the loss (length, task), exact at finite d and L'.

    **Example:** trained at 100 pairs; compare `softmax_length_loss`.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> sw.theory.softmax.exact_length_loss(task, [50, 100, 1000])[:, 0].round(3).tolist()
    [4.208, 2.518, 0.756]
    """
    heads, lengths = [np.diag(weights) for weights in flow_limit(task)], _lengths(contexts).ravel()
    return np.stack([exact_loss(task, *heads, context=int(length)) for length in lengths])


@checked
def linear_length_loss(
    task: MultiTask, contexts: Sequence[int], *, divided_by: DividedBy
) -> Float[np.ndarray, "length task"]:
    r"""Return the loss of linear attention at other context lengths than that of training, exact in d and L'.

    Attention predicts $\hat y = \tfrac cN\sum_ly_lx_l^\top q$, and $c_i = 1/(1+(d_i\phi_i+1)/L)$ is best at the task's
    own L. Divided by the length of the test, N = L', the loss is $S_i[(1-c)^2 + c^2\tfrac{d\phi+1}{L'}]$; by that of
    the training, N = L, c becomes cL'/L, and the loss grows as $(L'/L)^2$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask`; its context length L is that of the training.
    - `contexts`: the context lengths L' of the test.
    - `divided_by`: N, the length that attention is divided by: `"test"` for L', or `"train"` for L.

    **Returns:** the loss (length, task).

    **Example:** trained at 100 pairs.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100, noise_variance=1.0)
    >>> for divided_by in ("test", "train"):
    ...     loss = sw.theory.softmax.linear_length_loss(task, [50, 100, 1000], divided_by=divided_by)
    ...     print(loss[:, 0].round(2).tolist())
    [2.03, 1.07, 0.21]
    [3.54, 1.07, 638.19]
    """
    checks.one_of("divided_by", divided_by, get_args(DividedBy))
    constants, lengths = task_numbers(task), _lengths(contexts)
    spread = constants.dims * constants.phi + 1
    c = 1 / (1 + spread / constants.context) * (lengths / constants.context if divided_by == "train" else 1.0)
    return constants.signal * ((1 - c) ** 2 + c**2 * spread / lengths)


def _lengths(contexts: Sequence[int]) -> Float[np.ndarray, "length 1"]:
    lengths = np.array([[float(checks.whole("context", length))] for length in contexts])
    if lengths.size == 0:
        raise InvalidInput("contexts are empty; give at least one length")
    return lengths
