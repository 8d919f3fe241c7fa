r"""The flow of ω and μ themselves: $\dot\omega = -\tfrac12\partial_\omega\mathcal L$,
$\dot\mu = -\tfrac12\partial_\mu\mathcal L$, with the spectral loss.

Where `spectral_flow` is that of factors, which never changes a sign, here both signs grow from small weights of any
signs. With several heads of one task there are three stages: growth, until $c = \sum_h\mu_h\omega_h$ saturates; decay
of $\sum_h\mu_h$; and a drift along the valley of constant c, in which ω falls as $t^{-1/6}$ and μ grows.
"""

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._integrate import integrate
from .._task_protocols import MultiTask
from .._types import HeadTask, LeadHeadTask, PerTask, PerTime
from ._flow import FlowCourse, SpectralWeights, require_times
from ._losses import gram, spectral_loss
from ._task_numbers import require_weights, task_numbers


@checked
def direct_velocity(task: MultiTask, omega: LeadHeadTask, mu: LeadHeadTask) -> SpectralWeights:
    r"""Return minus half the gradient of `spectral_loss` in ω and μ.

    $\dot\mu_i^h = S_i\big[\omega_i^h(1-c_i) - \tfrac{\phi_i}L\sum_gE_{hg}\mu_i^g\big]$,
    $\dot\omega_j^h = S_j\mu_j^h(1-c_j) - \tfrac{d_j}L\sum_g\big(\sum_iS_i\phi_i\mu_i^h\mu_i^g\big)E_{hg}\omega_j^g$,
    $c_i = \sum_h\mu_i^h\omega_i^h$, $E_{hg} = e^{\langle\omega^h,\omega^g\rangle}$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (…, head, task), of any sign, as in `spectral_loss`.

    **Returns:** `SpectralWeights` with the velocities `omega` and `mu`, in the shape of the weights.

    **Example:** small weights turn each other on.

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> velocity = sw.theory.softmax.direct_velocity(task, [[0.001], [-0.001]], [[0.002], [-0.002]])
    >>> velocity.omega.round(4).tolist(), velocity.mu.round(4).tolist()
    ([[0.002], [-0.002]], [[0.001], [-0.001]])
    """
    require_weights(task, omega, mu)
    constants, kernel = task_numbers(task), np.exp(gram(task, omega))
    left = constants.signal * (1 - np.sum(mu * omega, axis=-2, keepdims=True))
    powers = constants.signal * constants.phi / constants.context
    together = np.einsum("...hi,i,...gi->...hg", mu, powers, mu) * kernel
    return SpectralWeights(left * mu - constants.dims * (together @ omega), left * omega - powers * (kernel @ mu))


@checked
def direct_flow(task: MultiTask, omega: HeadTask, mu: HeadTask, times: PerTime) -> FlowCourse:
    """Return the course of ω and μ by integrating `direct_velocity`.

    Differences of μ between heads of one sign are conserved in the last stage, in which all of them gain equally.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (head, task) at time 0, of any sign.
    - `times`: when weights are returned, increasing and at least 0. A step of gradient descent of rate η on half of the
      loss lasts η.

    **Returns:** `FlowCourse`: `omega` and `mu` (time, head, task), and the spectral `loss` (time, task).

    **Example:** a pair of opposite signs grows, overshoots, and becomes flatter for ever.

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> initial = [[0.001], [-0.001]]
    >>> course = sw.theory.softmax.direct_flow(task, initial, initial, np.array([0.0, 7.7, 1e3, 1e5]))
    >>> course.omega[:, 0, 0].round(3).tolist(), course.mu[:, 0, 0].round(2).tolist()
    ([0.001, 0.576, 0.206, 0.095], [0.0, 0.63, 2.13, 4.63])
    """
    require_weights(task, omega, mu)
    require_times(times)
    start = np.stack([omega, mu])

    def field(state: np.ndarray) -> np.ndarray:
        # Beyond this a trial step of the solver has left what float64 can hold.
        weights = np.clip(state, -1e3, 1e3).reshape(start.shape)
        return np.concatenate(direct_velocity(task, *weights)).ravel()

    states = integrate(field, start.ravel(), float(times[-1]), times=times).states.reshape(-1, *start.shape)
    return FlowCourse(states[:, 0], states[:, 1], spectral_loss(task, states[:, 0], states[:, 1]))


@checked
def direct_emergence_time(task: MultiTask, omega: HeadTask, mu: HeadTask) -> PerTask:
    r"""Return when half of a task is learned, $c_i = 1/2$, along `direct_flow` from small weights of any signs.

    While weights are small, $v_h = (\omega_h+\mu_h)/2$ grows as $e^{S_it}$ and $(\omega_h-\mu_h)/2$ decays, so that
    $\dot c = 2S_ic(1-c)$ from $c_0 = \sum_hv_h^2$, and $t = \tfrac1{2S_i}\ln(1/c_0-1)$. The sign of $v_h$ is mostly
    that of head h in the end. It leaves out variance, of order $\phi_iH/L$, and is early by that much: for one task
    with d = 5 and L = 40 by 2 % for a symmetric pair of size 0.001, and by 3 to 15 % for random weights up to 0.05.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `mu`: the weights (head, task) at time 0, with $0 < c_0 < 1/2$.

    **Returns:** the time for each task, in the time of `direct_flow`.

    **Example:** the flow itself takes 6.66.

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> sw.theory.softmax.direct_emergence_time(task, [[0.001], [-0.001]], [[0.001], [-0.001]]).round(2).tolist()
    [6.56]
    """
    require_weights(task, omega, mu)
    begun = np.sum(((omega + mu) / 2) ** 2, axis=0)
    if not np.all((begun > 0) & (begun < 0.5)):
        raise InvalidInput(
            f"sums over heads of ((omega + mu)/2)^2 are {begun.tolist()}; they must be above 0 and below 0.5: begin "
            "with small weights that are not 0"
        )
    return np.log(1 / begun - 1) / (2 * task_numbers(task).signal)


@checked
def both_signs_probability(heads: int) -> float:
    r"""Return the probability $1 - 2^{1-H}$ that heads of both signs emerge from symmetric random weights.

    The sign of a head is that of its $\omega_h+\mu_h$ initially. With one sign alone the flow ends where a single
    head does, at $S\rho/(1+\rho)$, $\rho = e\phi d/L$.

    **Arguments:**

    - `heads`: H, the number of heads.

    **Returns:** the probability.

    **Example:**

    >>> [sw.theory.softmax.both_signs_probability(heads) for heads in (1, 2, 4)]
    [0.0, 0.5, 0.875]
    """
    return 1 - 2.0 ** (1 - checks.whole("heads", heads))


@checked
def valley_omega(
    task: MultiTask, times: PerTime, *, positive: int = 1, negative: int = 1
) -> Float[np.ndarray, "time task"]:
    r"""Return the |ω| of active heads late in `direct_flow`, $\omega^{-6} = 4\gamma_id_i^2\bar h\,S_it$.

    $\gamma_i = \phi_id_i/L$ and $\bar h = 2/(1/n_++1/n_-)$ for $n_\pm$ heads of either sign. In the valley
    $\sum_h\mu_h = 0$ and $\sum_h\mu_h\omega_h = c = 1/(1+\gamma)$. With $u = \ln\omega$ half the loss has the slope
    $\tfrac{S\gamma a^2}{3(1+\gamma)^2}$, $a = d\omega^2$; heads of a sign gain equally, $d\mu_h = -\tfrac{c}{2\omega
    n_\pm}du$, an inertia of $c^2/(2\omega^2\bar h)$, so that $\dot u = -\tfrac23S\gamma d^2\bar h\,\omega^6$. It needs
    heads that serve one task only, and $a \ll 1$.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `times`: the times, above 0, in the time of `direct_flow`.
    - `positive`, `negative`: the numbers of active heads of either sign.

    **Returns:** |ω| at these times (time, task).

    **Example:** compare `direct_flow`.

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> sw.theory.softmax.valley_omega(task, np.array([1e4, 1e5, 1e6]))[:, 0].round(4).tolist()
    [0.1392, 0.0948, 0.0646]
    """
    if not np.all(times > 0):
        raise InvalidInput("times has an entry that is not above 0; the law is for late times, for instance 1e5")
    constants, mean = task_numbers(task), _mean_heads(positive, negative)
    gamma = constants.phi * constants.dims / constants.context
    return (4 * gamma * constants.dims**2 * mean * constants.signal * times[:, None]) ** (-1 / 6)


@checked
def dummy_growth(
    task: MultiTask, omega: PerTask, later: PerTask, *, positive: int = 1, negative: int = 1, dummies: int = 1
) -> PerTask:
    r"""Return by how much the logarithm of dummy heads grows while active heads drift along the valley.

    About ω = μ = 0 a head beside active ones has $\dot\omega = g\mu$, $\dot\mu = g\omega - \tfrac{S\phi}L\sum\mu$ with
    $g = \tfrac c2S\gamma d^2\omega^4$, $c = 1/(1+\gamma)$. Two dummies of opposite signs leave $\sum\mu = 0$ and
    grow at the rate g. One alone is held back by what keeps the sum of all n + 1 heads at 0, and grows at
    $g\sqrt{n/(n+1)}$, $n = n_++n_-$. With the ω of `valley_omega`
    $\int g\,dt = \tfrac{3c}{8\bar h}(\omega_2^{-2} - \omega_1^{-2})$: dummies stay for very long, but not for ever.

    **Arguments:**

    - `task`: the regressions, a `MultiTask` such as `stepwell.tasks.MultiTaskRegression`, with one context length L.
    - `omega`, `later`: |ω| of the active heads of each task first and later, above 0.
    - `positive`, `negative`: the numbers of active heads of either sign.
    - `dummies`: the number of dummy heads, of which the fastest mode is returned.

    **Returns:** the growth of the logarithm, for each task.

    **Example:** from t = 1e4 to 1e5.

    >>> task = sw.tasks.MultiTaskRegression((5,), 1.0, 40, noise_variance=0.1, convention="total")
    >>> growth = sw.theory.softmax.dummy_growth
    >>> [growth(task, [0.13942], [0.094864], dummies=dummies).round(2).tolist() for dummies in (1, 2)]
    [[16.06], [19.67]]
    """
    if not np.all(np.concatenate([omega, later]) > 0):
        raise InvalidInput("omega or later has an entry that is not above 0; give |ω| of active heads")
    constants, mean = task_numbers(task), _mean_heads(positive, negative)
    c = 1 / (1 + constants.phi * constants.dims / constants.context)
    active = positive + negative
    held_back = (active / (active + 1)) ** 0.5 if checks.whole("dummies", dummies) == 1 else 1.0
    return held_back * 3 * c / (8 * mean) * (later**-2 - omega**-2)


def _mean_heads(positive: int, negative: int) -> float:
    """The harmonic mean of the numbers of heads of either sign."""
    return 2 / (1 / checks.whole("positive", positive) + 1 / checks.whole("negative", negative))
