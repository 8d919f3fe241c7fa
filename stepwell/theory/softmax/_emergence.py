"""When tasks emerge from small weights, and how long it lasts."""

from typing import NamedTuple, Unpack

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import MultiTask
from .._types import PerTask
from ._task_numbers import FlowOptions, speeds, task_numbers


class WarmUp(NamedTuple):
    r"""`ratio` is ρ*, which μ/ω tends to, and `exponent` α: deviations from the ray die as $\omega^{-1/\alpha}$."""

    ratio: PerTask
    exponent: PerTask

    @property
    def amplification(self) -> PerTask:
        r"""$1/\sqrt\alpha$, above 1: on the ray, a head's lead in log ω grows as that power of ω."""
        return self.exponent**-0.5


class WarmUpPath(NamedTuple):
    """Time, ω and μ at given ratios μ/ω."""

    time: Float[np.ndarray, "ratio task"]
    omega: Float[np.ndarray, "ratio task"]
    mu: Float[np.ndarray, "ratio task"]


class EmergenceBracket(NamedTuple):
    """Predicted emergence times of each task: `early` with one effective head, `late` with all heads equally strong."""

    early: PerTask
    late: PerTask


@checked
def warm_up(task: MultiTask, *, heads: float = 1, **training: Unpack[FlowOptions]) -> WarmUp:
    r"""Return the ray $\mu = \rho^*\omega$ to which the flow of small weights tends.

    While $d\omega^2$ and μω are small, $\dot\omega = a\omega\mu$ and $\dot\mu = b\mu(\omega - H\phi\mu/L)$ with
    $a = 2c_\ell s\lambda$, $b = 2c_\ell\lambda d$. So $\rho^* = L/(H\phi + Ls/d)$, and $\alpha = a\rho^*/b$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `heads`: the number of equally strong heads, H; it need not be whole. See `emergence_bracket`.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** `WarmUp` with the `ratio` ρ*, the `exponent` α and the `amplification` of leads for each task.

    **Example:**

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> ray = sw.theory.softmax.warm_up(task, embedding=30)
    >>> ray.ratio.round(2).tolist(), ray.exponent.round(3).tolist()
    ([35.39], [0.646])
    """
    heads = checks.number("heads", heads, least=0.0, above=True)
    constants, rates = task_numbers(task), speeds(task, **training)
    over = rates.scores / (rates.values * constants.dims)
    ratio = constants.context / (heads * constants.phi + constants.context * over)
    return WarmUp(ratio, over * ratio)


@checked
def emergence_time(
    task: MultiTask, omega: PerTask, mu: PerTask | None = None, *, heads: float = 1, **training: Unpack[FlowOptions]
) -> PerTask:
    r"""Return the time at which the small initial weights of each task have grown, and its loss drops.

    On the ray (`warm_up`) ω(t) is $\omega_0/(1-t/t_b)$, $t_b = 1/(2c_\ell s\lambda\rho^*\omega_0)$. From elsewhere the
    time is $t_b\,{}_2F_1(1,\alpha;1+\alpha;1-\rho_0/\rho^*)$, $\rho_0 = \mu_0/\omega_0$: the solution of the equations
    of `warm_up`, exact as the initial weights become small, to within the width of the drop (`loss_drop_width`).

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`: the initial ω on each task of the head that wins it, above 0 and small.
    - `mu`: the initial μ of the same heads, above 0. By default on the ray, $\rho^*\omega_0$.
    - `heads`: the number of equally strong heads, H; it need not be whole. See `emergence_bracket`.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the time for each task, in the time of the flow (`FlowOptions`).

    **Example:** half the initial weight takes twice the time.

    >>> task = sw.tasks.MultiTaskRegression((10, 10), context=100)
    >>> sw.theory.softmax.emergence_time(task, [0.004, 0.002]).round(2).tolist()
    [9.05, 18.09]
    """
    constants, rates = task_numbers(task), speeds(task, **training)
    ray = warm_up(task, heads=heads, **training)
    if np.any(omega <= 0) or (mu is not None and np.any(mu <= 0)):
        raise InvalidInput(
            "initial weights have an entry that is not above 0; give positive weights, since the flow never leaves zero"
        )
    on_ray = 1 / (rates.scores * constants.strengths * ray.ratio * omega)
    return on_ray if mu is None else on_ray * _delay(ray, mu / omega)


@checked
def emergence_bracket(
    task: MultiTask, omega: PerTask, mu: PerTask | None = None, *, heads: int, **training: Unpack[FlowOptions]
) -> EmergenceBracket:
    r"""Return the predicted bracket of the time at which each task emerges.

    Its ends are `emergence_time` with one effective head and with as many as there are heads. The stronger the winning
    head is, the nearer the time is to the first. That it lies between, to within the width of the drop
    (`loss_drop_width`), is observed and not proved.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the initial weights of each task's winner, as in `emergence_time`.
    - `heads`: the number of all heads.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** `EmergenceBracket` with `early` and `late` for each task, in the time of the flow (`FlowOptions`).

    **Example:** three heads, of which the winner is initially at ω = 0.008 and μ = 0.3.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> bracket = sw.theory.softmax.emergence_bracket(task, [0.008], [0.3], heads=3)
    >>> print(f"from {bracket.early[0]:.2f} to {bracket.late[0]:.2f}")
    from 3.37 to 4.51
    """
    late = emergence_time(task, omega, mu, heads=checks.whole("heads", heads), **training)
    return EmergenceBracket(emergence_time(task, omega, mu, heads=1, **training), late)


@checked
def warm_up_path(
    task: MultiTask,
    omega: PerTask,
    mu: PerTask,
    ratios: Float[np.ndarray, "ratio task"],
    *,
    heads: float = 1,
    **training: Unpack[FlowOptions],
) -> WarmUpPath:
    r"""Return time, ω and μ of the warm-up from weights off the ray, at given ratios ρ = μ/ω.

    $\omega = \omega_0\big[\tfrac{1-\rho_0/\rho^*}{1-\rho/\rho^*}\big]^\alpha$, and the time left is `emergence_time`.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the initial weights of each task, small. Their ratio $\rho_0 = \mu/\omega$ must not be ρ* itself.
    - `ratios`: values of μ/ω, each from $\rho_0$ to ρ* (`warm_up(task).ratio`), which is never reached.
    - `heads`: the number of equally strong heads, H; it need not be whole. See `emergence_bracket`.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** `WarmUpPath` with `time`, `omega` and `mu` at these ratios, time from that of the initial weights.

    **Example:** from a ratio above that of the ray, the columns being time, ω and μ: ω grows first.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=100)
    >>> ratios = np.array([[200.0], [100.0], [50.0]])
    >>> path = sw.theory.softmax.warm_up_path(task, np.array([0.001]), np.array([0.2]), ratios)
    >>> np.column_stack(path).round(4).tolist()
    [[0.0, 0.001, 0.2], [2.615, 0.0019, 0.1893], [5.8908, 0.0043, 0.2139]]
    """
    ray = warm_up(task, heads=heads, **training)
    start, now = 1 - mu / omega / ray.ratio, 1 - ratios / ray.ratio
    if np.any(start == 0) or np.any(now / start <= 0) or np.any(now / start > 1 + 1e-9):
        raise InvalidInput(
            "ratios must lie between the initial mu/omega and warm_up(task).ratio, which is never reached"
        )
    grown = omega * (start / now) ** ray.exponent
    whole = emergence_time(task, omega, mu, heads=heads, **training)
    left = emergence_time(task, omega, heads=heads, **training) * omega / grown * _delay(ray, ratios)
    return WarmUpPath(whole - left, grown, ratios * grown)


def _delay(ray: WarmUp, ratio: np.ndarray) -> np.ndarray:
    return scipy.special.hyp2f1(1.0, ray.exponent, 1 + ray.exponent, 1 - ratio / ray.ratio)


@checked
def loss_drop_width(task: MultiTask, **training: Unpack[FlowOptions]) -> PerTask:
    r"""Return the duration of the drop of the loss, in which μω goes from 10 % to 90 % of its limit.

    It is about $\tfrac4{c_\ell s\lambda_i}\sqrt{\phi_i/L}$: a fit of the scaling, within a fifth of the flow where
    `mu_lag` is below 3; it fails far above.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the duration for each task, in the time of the flow (`FlowOptions`).

    **Example:** a strong task drops faster than a weak one.

    >>> task = sw.tasks.MultiTaskRegression((10, 10), (1.0, 0.5), context=100)
    >>> sw.theory.softmax.loss_drop_width(task).round(3).tolist()
    [0.894, 1.789]
    """
    constants = task_numbers(task)
    return 8 / (speeds(task, **training).scores * constants.strengths) * np.sqrt(constants.phi / constants.context)


@checked
def omega_climb_width(task: MultiTask, **training: Unpack[FlowOptions]) -> PerTask:
    r"""Return the duration of the climb of ω that follows the drop of the loss, from 0.2 to 0.8 of $d_i^{-1/2}$.

    It is about $L/(6c_\ell s\lambda_i\phi_id_i^{3/2})$: a fit of the scaling, within a third of the flow where it
    exceeds `loss_drop_width`. For large L the loss has dropped long before ω is near its limit.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `**training`: keywords of `FlowOptions`, which set $c_\ell$ and the scale s of the scores.

    **Returns:** the duration for each task, in the time of the flow (`FlowOptions`).

    **Example:** with a long context the climb of ω takes longer than the drop of the loss.

    >>> task = sw.tasks.MultiTaskRegression((10,), context=1600)
    >>> widths = sw.theory.softmax.omega_climb_width, sw.theory.softmax.loss_drop_width
    >>> [width(task, embedding=30).round(2).tolist() for width in widths]
    [[23.09], [0.27]]
    """
    constants, rate = task_numbers(task), speeds(task, **training).scores
    return constants.context / (3 * rate * constants.strengths * constants.phi * constants.dims**1.5)
