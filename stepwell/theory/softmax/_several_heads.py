"""The exact loss of any number of heads that serve one task together."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import MultiTask
from .._types import HeadTask
from ._exact_loss import chi_square_rule
from ._task_numbers import require_weights, task_numbers

_TOLERANCE = 1e-11
"""What the grids leave out."""
_LOG_STEP = 0.4
"""In log t. The trapezoidal rule errs by about exp(-pi^2 / step), which is 2e-11."""


class HeadsLoss(NamedTuple):
    r"""The exact loss of heads with given ω as a function of their μ: $S - 2b^\top\mu + \mu^\top Q\mu$.

    `signal` is S, `linear` b and `quadratic` Q.
    """

    signal: float
    linear: Float[np.ndarray, " head"]
    quadratic: Float[np.ndarray, "head head"]

    @property
    def best_mu(self) -> Float[np.ndarray, " head"]:
        """The μ of least loss; the smallest one, if heads of equal ω leave a choice."""
        return np.linalg.lstsq(self.quadratic, self.linear)[0]

    def loss(self, mu: Float[np.ndarray, " head"]) -> float:
        """The loss at μ."""
        return float(self.signal - 2 * self.linear @ mu + mu @ self.quadratic @ mu)


@checked
def exact_heads(task: MultiTask, omega: HeadTask, *, context: int | None = None) -> HeadsLoss:
    r"""Return the loss of several heads of one task, exact at finite L and d, as a quadratic function of their μ.

    $\mathcal L = \mathbb E_r\big\{\lambda\big[r^2 - 2r\mu^\top m + \mu^\top(T+(d-1)R)\mu\big]
    + \sigma^2\mu^\top R\mu\big\}$, $r = |q| \sim \chi_d$, $m_h = a_h(1-R_{hh})$,

    $R_{hg} = \mathbb E\sum_lp_l^hp_l^g$, $T_{hg} = \mathbb E\sum_lp_l^hz_l\sum_lp_l^gz_l$: all scores are
    $a_h z_l$, $a_h = \omega_hr$, with the same Gaussian $z_l$, the token along the query. With
    $1/Z_hZ_g = \iint e^{-tZ_h-uZ_g}\,dt\,du$ tokens separate,

    $R_{hg} = L\iint B_0C^{L-1}$, $T_{hg} = L\iint B_2C^{L-1} + L(L-1)\iint A_hA_gC^{L-2}$,

    $C = \mathbb E e^{-te^{a_hz}-ue^{a_gz}}$, $B_k = \mathbb E[z^ke^{(a_h+a_g)z-\dots}]$,
    $A_h = \mathbb E[ze^{a_hz-\dots}]$, which are products of three matrices on a grid in t, z and u. Errors of R and T
    are below 1e-9; a pair of heads takes about 50 ms. For one head see `exact_loss`.

    **Arguments:**

    - `task`: the regression, a `MultiTask` of one task, with one context length L.
    - `omega`: the ω of each head (head, 1), of either sign.
    - `context`: the context length at test; by default that of the task.

    **Returns:** the `HeadsLoss`: `loss(mu)` is the expected squared error, and `best_mu` minimizes it; the target has
    no noise.

    **Example:** a pair of heads of opposite signs, which a single one does not come near.

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> pair = sw.theory.softmax.exact_heads(task, [[0.0712], [-0.0712]])
    >>> round(pair.loss(pair.best_mu), 4), sw.theory.softmax.exact_optimum(task).loss.round(4).tolist()
    (0.1428, [0.304])
    """
    require_weights(task, omega)
    if len(task.dims) != 1:
        raise InvalidInput(
            f"the task consists of {len(task.dims)} tasks; several heads of a task are known exactly for one: give "
            "each task by itself, or sample the loss with stepwell.objectives"
        )
    constants = task_numbers(task)
    length = constants.context if context is None else checks.whole("context", context)
    d, lam, heads = float(constants.dims[0]), float(constants.strengths[0]), len(omega)
    linear, quadratic = np.zeros(heads), np.zeros((heads, heads))
    for square, weight in zip(*chi_square_rule(d), strict=True):
        a = omega[:, 0] * square**0.5
        overlap, second = _pair_moments(a, length)
        linear += weight * lam * square**0.5 * a * (1 - np.diag(overlap))
        quadratic += weight * (lam * (second + (d - 1) * overlap) + constants.noise * overlap)
    return HeadsLoss(float(constants.signal[0]), linear, quadratic)


class _Kernel(NamedTuple):
    r"""$1 - e^{-w}$, $e^{-w}$ and $we^{-w}$ at $w = te^{az}$, on a grid of log t and z."""

    lost: Float[np.ndarray, "t z"]
    kept: Float[np.ndarray, "t z"]
    taken: Float[np.ndarray, "t z"]


def _pair_moments(a: Float[np.ndarray, " head"], length: int) -> Float[np.ndarray, "2 head head"]:
    """R and T of every pair of heads at these sharpnesses, which may be negative."""
    far = -float(scipy.special.ndtri(_TOLERANCE / length**2))
    low = float(scipy.special.ndtri((_TOLERANCE / length) ** (1 / length)))
    # As of a single head (`softmax_moments`): exp(-t e^{az}) grows beyond |Im z| = pi/(2a).
    step = min(0.3, _LOG_STEP / max(float(np.abs(a).max()), 1e-300))
    z = step * np.arange(-int(np.ceil(far / step)), int(np.ceil(far / step)) + 1)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    kernels = [_kernel(sharpness, z, far, low, length) for sharpness in a]
    moments = np.empty((2, a.size, a.size))
    for h, first in enumerate(kernels):
        for g, second in enumerate(kernels[: h + 1]):
            lost = (first.lost @ density)[:, None] + second.lost @ density - (first.lost * density) @ second.lost.T
            others = np.log1p(-np.minimum(lost, 1 - 1e-16))
            alone = length * np.exp((length - 1) * others)
            moments[0, h, g] = np.sum((first.taken * density) @ second.taken.T * alone)
            moments[1, h, g] = np.sum((first.taken * (density * z**2)) @ second.taken.T * alone)
            if length > 1:
                means = (first.taken * (density * z)) @ second.kept.T, (first.kept * (density * z)) @ second.taken.T
                both = length * (length - 1) * np.exp((length - 2) * others)
                moments[1, h, g] += np.sum(means[0] * means[1] * both)
            moments[:, g, h] = moments[:, h, g]
    return moments * _LOG_STEP**2


def _kernel(a: float, z: Float[np.ndarray, " z"], far: float, low: float, length: int) -> _Kernel:
    size = abs(float(a))
    first = -min(size**2 / 2, size * far) - np.log(length) + np.log(_TOLERANCE)
    log_t = np.arange(first, np.log(-2 * np.log(_TOLERANCE)) - size * low + _LOG_STEP, _LOG_STEP)
    power = np.exp(np.minimum(log_t[:, None] + a * z, 700.0))
    kept = np.exp(-power)
    return _Kernel(-np.expm1(-power), kept, power * kept)
