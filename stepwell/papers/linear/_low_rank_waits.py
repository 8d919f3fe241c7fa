r"""How long separate attention of rank R waits on each plateau: for a fresh head, or for a further pair of one.

Time is measured in units of the escape rate, $\rho_mT_m$ with $\rho_m = \lambda_{m+1}^2$, and $T_m$ goes from the
middle of a drop to the middle of the next. There are two ways off plateau m.

**A fresh head**, where R divides m: a race of all heads that are left, $W_m/s$ (below).

**A further pair** of the head that made the last drop, elsewhere. All pairs of a head share its clock $I = \int
v\,dt/\tau$, and along $e_d$ they have grown by $e^{g_dI}$ since the beginning, whatever v was. Component d is learned
when that has brought them from their initial size $\sqrt{S_d}$ to where the loss is halfway down, $vu_d^2 = (1 -
\sqrt{1/2})\,a_d$: at $I = \ell_d/g_d$ with $\ell_d = \ln(u_d/\sqrt{S_d})$. Of R pairs those count that have learned
nothing, n of them, so that $S_d = \tfrac12\sigma^2\chi^2_n$ with $\sigma^2 = s^2/(R(D+1))$; its median is taken.
Between two drops the value is at rest, $v_m = (\sum a_d)^{1/3}$ over what the head has learned. So $\rho_mT_m =
(\ell_{m+1} - \ell_m\, g_{m+1}/g_m)/v_m$: a logarithm, and only a part of it, since the next pair has been growing all
along.

**A head alone.** On plateau m the m components of largest variance are learned, and heads do not interact
(`theory.linear.drop_schedule`). With $g_d = \lambda_d^2$ for what is not learned and $g_d = 0$ for what is, a small
head moves by $\tau\dot v = \sum_d g_d (S_d - \Delta_d)$, $\tau\dot S_d = 2vg_dS_d$, $\tau\dot\Delta_d = -2vg_d\Delta_d$
where $S_d = \sum_r (\tfrac12(k_r + q_r)\cdot e_d)^2$ and $\Delta_d = \sum_r (\tfrac12(k_r - q_r)\cdot e_d)^2$. With the
clock $I = \int v\,dt/\tau$ of a head, $S_d \propto e^{2g_dI}$, $\Delta_d \propto e^{-2g_dI}$, and $v^2 - \sum_d (S_d +
\Delta_d)$ is conserved. So v grows hyperbolically *from the very beginning*, on every plateau, and is infinite after
the finite time $\int dI/v(I)$. From an initialization of size s, $v = s\,\hat v$, that time is 1/s times a number which
is the same for all s. On plateau 0, of a head with $v_0 > 0$ and one component alone, it is
$\tau\,\mathrm{arsinh}(b/\sqrt S)/(g b)$, $b^2 = v_0^2 - S$; of an aligned one, $S = v_0^2$, the paper's
$\tau/(\lambda^2 v_0)$.

**The race.** Plateau m ends when the first head is infinite. That head learns component m + 1, and then, since its
value has grown, at once (in the time $\ln(1/s)$, not 1/s) all that its R pairs can: components m + 1 to m + R. The rest
go on from where they are, with these components frozen. So heads win in the order of their blow-up times, which are
random, and the wait $T_m$ is the difference of two neighboring order statistics, under gains $g_d$ that fall: for
$\rho_m = \lambda_{m+1}^2$, $W_m = s\rho_mT_m$ has a distribution that does not depend on s, and a positive density at
zero. There is no least wait. (If growth on earlier plateaus did not count, all waits would be as long as the first;
if it all counted, $W_m$ would be the difference of two inverse sizes.)

The race is the limit of `drop_schedule` for a vanishing initialization, where drops and further pairs take no time. It
is integrated by the method of Runge and Kutta with steps that shrink with the fastest head, for many initializations at
once.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

DIM = 8
INFINITE = 1e4  # A head of this size, in units of its initial size, has left: what remains of its time is a part 1e-4.
PACE = 0.1  # the fastest head grows by about this fraction in a step


class Heads(NamedTuple):
    r"""v, $S_d$ and $\Delta_d$ of every head, of many initializations."""

    values: Float[np.ndarray, "draw head"]
    sums: Float[np.ndarray, "draw head dim"]
    differences: Float[np.ndarray, "draw head dim"]


def race(gains: Float[np.ndarray, " dim"], heads: Heads, rank: int) -> Float[np.ndarray, "draw fresh"]:
    r"""$W_m = s\rho_mT_m$ for m = 0, R, 2R, …, as long as there are heads, from initial weights of size s = 1.

    `gains` are $g_d$, falling.
    """
    v, s, delta = (part.copy() for part in heads)
    waits = []
    for learned in range(0, min(gains.size, v.shape[1] * rank), rank):
        rates = gains[learned:] / gains[learned]
        waited, v, clock = _until_the_first(v, s[:, :, learned:], delta[:, :, learned:], rates)
        waits.append(waited)
        # Clocks ran in units of the leading gain.
        grown = np.exp(2 * clock[:, :, None] * rates)
        s[:, :, learned:] *= grown
        delta[:, :, learned:] /= grown
        winner = np.argmax(np.abs(v), axis=1)
        rows = np.arange(len(v))
        v[rows, winner], s[rows, winner], delta[rows, winner] = 0.0, 0.0, 0.0
    return np.stack(waits, axis=1)


def random_heads(rank: int, draws: int, *, dim: int, heads: int, seed: int = 0) -> Heads:
    r"""Of size s = 1: keys and queries have the variance $\sigma^2 = 1/(R(D+1))$, so that $S_d$ and $\Delta_d$ are
    $\tfrac12\sigma^2$ times a χ² variable with R degrees of freedom each."""
    rng = np.random.default_rng(seed)
    half_variance = 0.5 / (rank * (dim + 1))
    values = rng.normal(size=(draws, heads))
    return Heads(values, *(half_variance * rng.chisquare(rank, size=(draws, heads, dim)) for _ in range(2)))


def heads_of(
    values: Float[np.ndarray, "draw head"],
    keys: Float[np.ndarray, "draw head pair dim"],
    queries: Float[np.ndarray, "draw head pair dim"],
) -> Heads:
    """Given weights, whose axes are eigenvectors."""
    return Heads(values, np.sum(((keys + queries) / 2) ** 2, axis=2), np.sum(((keys - queries) / 2) ** 2, axis=2))


def _until_the_first(v: np.ndarray, s: np.ndarray, delta: np.ndarray, rates: Float[np.ndarray, " left"]):
    """(time, v, clocks) when the first head of each draw is infinite, in units of the first of the rates."""

    def speed(clock: np.ndarray) -> np.ndarray:
        grown = np.exp(2 * clock[:, :, None] * rates)
        return (s * grown) @ rates - (delta / grown) @ rates

    clock, time = np.zeros_like(v), np.zeros(len(v))
    going = np.ones(len(v), bool)
    while going.any():
        grown = np.exp(2 * clock[:, :, None] * rates)
        size = np.sqrt(np.maximum(v**2, (s * grown + delta / grown) @ rates)).max(axis=1)
        step = np.where(going, PACE / size, 0.0)
        h = step[:, None]
        a1 = speed(clock)
        v2, a2 = v + h / 2 * a1, speed(clock + h / 2 * v)
        v3, a3 = v + h / 2 * a2, speed(clock + h / 2 * v2)
        v4, a4 = v + h * a3, speed(clock + h * v3)
        clock = clock + h / 6 * (v + 2 * v2 + 2 * v3 + v4)
        v = v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        time = time + step
        going &= np.abs(v).max(axis=1) < INFINITE
    return time + 1 / np.abs(v).max(axis=1), v, clock


HALFWAY = 1 - 0.5**0.5  # Of a component, when the loss has made half of its fall: the loss is quadratic.


class PairWaits(NamedTuple):
    r"""$\rho_mT_m$ for a further pair on each plateau m, nan where a fresh head is needed.

    `spread` is its standard deviation over random initializations: that of $\tfrac12\ln\chi^2_n$ is
    $\tfrac12\sqrt{\psi'(n/2)}$.
    """

    wait: Float[np.ndarray, " plateau"]
    spread: Float[np.ndarray, " plateau"]


def further_pairs(task: InContextRegression, rank: int, size: float) -> PairWaits:
    """From initial weights of this size s."""
    modes = theory.modes(task)
    ends, gains = modes.ends, modes.driving
    made = PairWaits(np.full(DIM, np.nan), np.full(DIM, np.nan))
    for m in np.flatnonzero(np.arange(DIM) % rank):
        used = m % rank
        value, ratio = ends[m - used : m].sum() ** (1 / 3), gains[m] / gains[m - 1]
        free = np.array([rank - used + 1, rank - used])  # when component m was learned, and now
        median = 2 * scipy.special.gammaincinv(free / 2, 0.5)
        starts = size * np.sqrt(median / (2 * rank * (DIM + 1)))
        before, after = np.log(np.sqrt(HALFWAY * ends[m - 1 : m + 1] / value) / starts)
        made.wait[m] = (after - before * ratio) / value
        deviations = 0.5 * np.sqrt(scipy.special.polygamma(1, free / 2))
        made.spread[m] = float(np.hypot(deviations[1], ratio * deviations[0])) / value
    return made


def longest_pair(task: InContextRegression, size: float) -> float:
    """The longest of these waits, of any rank: R = 2, m = 1, where the value of the head is smallest."""
    return float(np.nanmax(further_pairs(task, 2, size).wait))
