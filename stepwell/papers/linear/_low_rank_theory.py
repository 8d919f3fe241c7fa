r"""How long a plateau of separate attention of rank R lasts, from the task and the size of the start alone.

Time is measured in units of the escape rate, $\rho_mT_m$ with $\rho_m = \lambda_{m+1}^2$, and $T_m$ goes from the
middle of a drop to the middle of the next. There are two ways off plateau m.

**A fresh head**, where R divides m: a race of all heads that are left, $W_m/s$ (`_low_rank_race`).

**A further pair** of the head that made the last drop, elsewhere. All pairs of a head share its clock $I = \int
v\,dt/\tau$, and along $e_d$ they have grown by $e^{g_dI}$ since the beginning, whatever v was. Component d is learned
when that has brought them from their start $\sqrt{S_d}$ to where the loss is halfway down, $vu_d^2 = (1 -
\sqrt{1/2})\,a_d$: at $I = \ell_d/g_d$ with $\ell_d = \ln(u_d/\sqrt{S_d})$. Of R pairs those count that have learned
nothing, n of them, so that $S_d = \tfrac12\sigma^2\chi^2_n$ with $\sigma^2 = s^2/(R(D+1))$; its median is taken.
Between two drops the value is at rest, $v_m = (\sum a_d)^{1/3}$ over what the head has learned. So $\rho_mT_m =
(\ell_{m+1} - \ell_m\, g_{m+1}/g_m)/v_m$: a logarithm, and only a part of it, since the next pair has been growing all
along.

**What counts as conspicuous.** A plateau is conspicuous if $\rho_mT_m$ is above the geometric mean of the two, for the
plateaus on which they are closest: the longest wait for a further pair (m = 1) and the shortest median wait for a fresh
head of that rank. It grows as $\sqrt{\ln(1/s)/s}$, waits for fresh heads as 1/s. So the probability that a plateau with
R | m is not conspicuous, $P(W_m < s\theta)$, falls about as $\sqrt{s\ln(1/s)}$: slowly, and never to zero in every
seed.
"""

from typing import NamedTuple

import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float

from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

from ._low_rank_race import race, random_heads
from ._low_rank_settings import DIM, Settings

HALFWAY = 1 - 0.5**0.5
"""Of a component, when the loss has made half of its fall: the loss is quadratic."""


class PairWaits(NamedTuple):
    r"""$\rho_mT_m$ for a further pair on each plateau m, nan where a fresh head is needed.

    `spread` is its standard deviation over random starts: that of $\tfrac12\ln\chi^2_n$ is $\tfrac12\sqrt{\psi'(n/2)}$.
    """

    wait: Float[np.ndarray, " plateau"]
    spread: Float[np.ndarray, " plateau"]


def further_pairs(task: InContextRegression, rank: int, size: float) -> PairWaits:
    """From a start of this size s."""
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


def predict(settings: Settings) -> xr.Dataset:
    """Levels, rates, both laws of waiting, thresholds, and how often a plateau with R | m is not conspicuous.

    The last two at parts of the published init, ten to a decade.
    """
    task, size, ranks = settings.task, settings.size, settings.ranks
    gains = theory.escape_rates(task)
    smallest, largest = max(3, *settings.decades), min(0, *settings.decades)
    scales = np.geomspace(10.0**-smallest, 10.0**-largest, 10 * (smallest - largest) + 1)
    sizes = size * scales
    longest = np.array([longest_pair(task, each) for each in sizes])
    waits = np.full((len(ranks), settings.draws, DIM), np.nan)
    pairs = [further_pairs(task, rank, size) for rank in ranks]
    thresholds, wrong = np.empty((2, len(ranks), scales.size))
    for place, rank in enumerate(ranks):
        scaled = race(gains, random_heads(rank, settings.draws, dim=DIM, heads=settings.heads), rank)
        waits[place][:, settings.fresh(rank)] = scaled / size
        thresholds[place] = np.sqrt(longest * np.median(scaled, axis=0).min() / sizes)
        wrong[place] = [np.mean(scaled < s * limit) for s, limit in zip(sizes, thresholds[place], strict=True)]
    return xr.Dataset(
        {
            "level": ("component", theory.levels(task)),
            "escape_rate": ("plateau", gains),
            "fresh_wait": (("rank", "draw", "plateau"), waits),
            "pair_wait": (("rank", "plateau"), [pair.wait for pair in pairs]),
            "pair_spread": (("rank", "plateau"), [pair.spread for pair in pairs]),
            "threshold": (("rank", "scale"), thresholds),
            "wrong": (("rank", "scale"), wrong),
        },
        {"rank": list(ranks), "scale": scales, "plateau": np.arange(DIM)},
    )
