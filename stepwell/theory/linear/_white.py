"""Merged key and query with white covariance: the drop is a logistic curve."""

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import require_positive, require_times
from .._task import RegressionTask
from ._merged import MergedCourse
from ._modes import Modes, modes


@checked
def white_course(task: RegressionTask, times: Float[np.ndarray, " time"], initial_weight: float) -> MergedCourse:
    r"""The course of merged attention on white inputs, $\Lambda = \lambda I$, $\Omega = \omega I$, in closed form.

    The start is aligned, with $\|w_2\| = \|W_1\| = w_{init}$.
    With $s = \|w_2\|\|W_1\|$, $s(0) = w_{init}^2$, $m = \lambda\omega$, $c$ as in `Modes`:
    $\tau\dot s = 2s(\sqrt D\,\lambda m - \lambda c\, s)$, so
    $s = s_\infty/(1 + (s_\infty/s(0) - 1)\, e^{-\kappa t/\tau})$ with
    $\kappa = 2\sqrt D\,\lambda m$, $s_\infty = \sqrt D\, m/c$, and $\hat y = (s/\sqrt D)\,\beta^\top x_q$.
    For $\lambda = \omega = 1$, $\sigma = 0$, $s/\sqrt D$ is the paper's eq. 10.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances are multiples of the identity.
    - `times`: the times at which the course is asked for, in units of τ; increasing, from 0 on.
    - `initial_weight`: $w_{init}$, above 0 and with its square below $s_\infty$.

    **Returns:** the `MergedCourse`: the loss, $v(t) = \sqrt s$ and $u_d(t) = \sqrt{s/D}$ at `times`.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.eye(4), 31)
    >>> sw.theory.linear.white_course(task, np.array([0.0, 3.0, 10.0]), 0.01).loss.round(3).tolist()
    [4.0, 0.587, 0.556]
    """
    require_times(times)
    require_positive("initial_weight", initial_weight)
    eigenmodes = _white(task)
    dim = eigenmodes.variances.size
    rate, end = _logistic(eigenmodes)
    # In log odds, so that neither a tiny start nor a long time overflows; a start at or above the end has none.
    ratio = initial_weight**2 / end
    if ratio >= 1:
        raise InvalidInput(f"initial_weight is {initial_weight}; the closed form starts below the end, {end**0.5:.3g}")
    s = end * scipy.special.expit(np.log(ratio) - np.log1p(-ratio) + rate * times)
    missing = end * scipy.special.expit(np.log1p(-ratio) - np.log(ratio) - rate * times)
    loss = eigenmodes.remains.sum() + eigenmodes.curvature[0] * missing**2
    return MergedCourse(times, loss, np.sqrt(s), np.tile(np.sqrt(s / dim)[:, None], (1, dim)))


@checked
def white_half_drop_time(task: RegressionTask, initial_weight: float) -> float:
    r"""The time at which the loss of merged attention on white inputs is halfway down, in closed form.

    It is halfway between the first and the last level at $s/s_\infty = 1 - 1/\sqrt2 =: x$, with $s$, $s_\infty$, κ as
    in `white_course`:
    $t/\tau = \kappa^{-1}\,[\,\mathrm{logit}(x) - \mathrm{logit}(w_{init}^2/s_\infty)\,]$.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances are multiples of the identity.
    - `initial_weight`: $w_{init}$, above 0: the norm of all values, and of all merged matrices, at the aligned start.

    **Returns:** the time, in units of τ; 0 if the start is past the half.

    **Example:** as `half_drop_time`, which integrates.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.eye(4), 31)
    >>> time = sw.theory.linear.white_half_drop_time(task, 0.01)
    >>> print(f"{time:.3f}, {sw.theory.linear.half_drop_time(task, 0.01, np.full(4, 0.005)):.3f}")
    2.218, 2.218
    """
    require_positive("initial_weight", initial_weight)
    rate, end = _logistic(_white(task))
    ratio, half = initial_weight**2 / end, 1 - 2**-0.5
    if ratio >= half:
        return 0.0
    return float(np.log(half / (1 - half)) - np.log(ratio) + np.log1p(-ratio)) / rate


def _logistic(eigenmodes: Modes) -> tuple[float, float]:
    root = float(np.sqrt(eigenmodes.variances.size))
    return 2 * root * float(eigenmodes.driving[0]), root * float(eigenmodes.ends[0])


def _white(task: RegressionTask) -> Modes:
    eigenmodes = modes(task)
    for name, spectrum in (("covariance", eigenmodes.variances), ("task_covariance", eigenmodes.task_variances)):
        if np.ptp(spectrum) > 1e-8 * spectrum.max():
            raise InvalidInput(
                f"{name} has eigenvalues from {spectrum.min():.3g} to {spectrum.max():.3g}; the closed form needs them "
                "equal, and merged_course takes any"
            )
    return eigenmodes
