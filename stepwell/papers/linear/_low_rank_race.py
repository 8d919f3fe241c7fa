r"""How long separate attention of rank R waits for a fresh head, from a small random start: a race of all heads.

**A head alone.** On plateau m the m components of largest variance are learned, and heads do not interact
(`theory.linear.drop_schedule`). With $g_d = \lambda_d^2$ for what is not learned and $g_d = 0$ for what is, a small
head moves by $\tau\dot v = \sum_d g_d (S_d - \Delta_d)$, $\tau\dot S_d = 2vg_dS_d$, $\tau\dot\Delta_d = -2vg_d\Delta_d$
where $S_d = \sum_r (\tfrac12(k_r + q_r)\cdot e_d)^2$ and $\Delta_d = \sum_r (\tfrac12(k_r - q_r)\cdot e_d)^2$. With
the clock $I = \int v\,dt/\tau$ of a head, $S_d \propto e^{2g_dI}$, $\Delta_d \propto e^{-2g_dI}$, and
$v^2 - \sum_d (S_d + \Delta_d)$ is conserved. So v grows hyperbolically *from the very beginning*, on every plateau, and
is infinite after the finite time $\int dI/v(I)$. From a start of size s, $v = s\,\hat v$, that time is 1/s times a
number which is the same for all s. On plateau 0, of a head with $v_0 > 0$ and one component alone, it is
$\tau\,\mathrm{arsinh}(b/\sqrt S)/(g b)$, $b^2 = v_0^2 - S$; of an aligned one, $S = v_0^2$, the paper's
$\tau/(\lambda^2 v_0)$.

**The race.** Plateau m ends when the first head is infinite. That head learns component m + 1, and then, since its
value has grown, at once (in the time $\ln(1/s)$, not 1/s) all that its R pairs can: components m + 1 to m + R. The rest
go on from where they are, with these components frozen. So heads win in the order of their blow-up times, which are
random, and the wait $T_m$ is the difference of two neighboring order statistics, under gains $g_d$ that fall: for
$\rho_m = \lambda_{m+1}^2$, $W_m = s\rho_mT_m$ has a distribution that does not depend on s, and a positive density at
zero. There is no least wait. (If growth on earlier plateaus did not count, all waits would be as long as the first;
if it all counted, $W_m$ would be the difference of two inverse sizes.)

The race is the limit of `drop_schedule` for a vanishing start, where drops and further pairs take no time. It is
integrated by the method of Runge and Kutta with steps that shrink with the fastest head, for many starts at once.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

INFINITE = 1e4
"""A head of this size, in units of the start's, has left: what remains of its time is a part 1e-4."""
PACE = 0.1
"""The fastest head grows by about this fraction in a step."""


class Heads(NamedTuple):
    r"""v, $S_d$ and $\Delta_d$ of every head, of many starts."""

    values: Float[np.ndarray, "draw head"]
    sums: Float[np.ndarray, "draw head dim"]
    differences: Float[np.ndarray, "draw head dim"]


def race(gains: Float[np.ndarray, " dim"], heads: Heads, rank: int) -> Float[np.ndarray, "draw fresh"]:
    r"""$W_m = s\rho_mT_m$ for m = 0, R, 2R, …, as long as there are heads, of starts of size s = 1.

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
    r"""Random starts as in the figures, for s = 1.

    Keys and queries have the variance $\sigma^2 = 1/(R(D+1))$, so that $S_d$ and $\Delta_d$ are $\tfrac12\sigma^2$
    times a χ² variable with R degrees of freedom each.
    """
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

    def speed(v: np.ndarray, clock: np.ndarray) -> np.ndarray:
        grown = np.exp(2 * clock[:, :, None] * rates)
        return (s * grown) @ rates - (delta / grown) @ rates

    clock, time = np.zeros_like(v), np.zeros(len(v))
    going = np.ones(len(v), bool)
    while going.any():
        grown = np.exp(2 * clock[:, :, None] * rates)
        size = np.sqrt(np.maximum(v**2, (s * grown + delta / grown) @ rates)).max(axis=1)
        step = np.where(going, PACE / size, 0.0)
        h = step[:, None]
        v1, a1 = v, speed(v, clock)
        v2 = v + h / 2 * a1
        a2 = speed(v2, clock + h / 2 * v1)
        v3 = v + h / 2 * a2
        a3 = speed(v3, clock + h / 2 * v2)
        v4 = v + h * a3
        a4 = speed(v4, clock + h * v3)
        clock = clock + h / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
        v = v + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        time = time + step
        going &= np.abs(v).max(axis=1) < INFINITE
    return time + 1 / np.abs(v).max(axis=1), v, clock
