"""Quadratic units: each grows by itself, and faster the larger it is."""

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked

_AHEAD = np.linspace(-4.3, 20.0, 2000)
"""Of the double exponential formula for what falls exponentially, $s = \\exp(x - e^{-x})$: errors are rounding."""
_WITHIN = np.linspace(-4.5, 4.5, 400)
"""The same of an interval, $s = 1/(1 + \\exp(-\\frac\\pi2\\sinh x))$."""
_STEPS = 100
"""Towards a turning point, which Newton's method approaches from one side, some ten do; halvings are exact after 60."""


@checked
def blow_up_time(
    spectrum: Float[np.ndarray, " mode"], outer: Float[np.ndarray, " unit"], inner: Float[np.ndarray, "unit mode"]
) -> Float[np.ndarray, " unit"]:
    r"""Return when each quadratic unit of small weights, alone in the field of zero, has grown beyond all bounds.

    In the eigenvectors of the symmetric matrix $\Sigma = \mathbb E\,yZ(x)$, with eigenvalues $\sigma_d$, a unit
    $v\,u^\top Zu$ grows by $\tau\dot v = \sum_d\sigma_du_d^2$, $\tau\dot u_d = 2v\sigma_du_d$. With $s = \int v\,dt$
    all is known, $u_d = u_d(0)\,e^{2\sigma_ds}$ and
    $v^2 = Q(s) = v(0)^2 + \tfrac12\sum_du_d(0)^2\,(e^{4\sigma_ds} - 1)$, and $t/\tau = \int ds/v$. Q is convex: if it
    has a root on the way, v changes its sign there, s turns round, and there is no other. A head of attention of rank
    one is such a unit, u = (k, q), with $\sigma_d$ half of plus and minus the singular values of its matrix.

    **Arguments:**

    - `spectrum`: $\sigma_d$.
    - `outer`: v(0) of each unit.
    - `inner`: $u_d(0)$ of each unit, a unit a row.

    **Returns:** the time of each unit, in units of τ; infinite if it never grows.

    **Example:** balanced along one direction, $\dot v = 2\sigma v^2$; and of the wrong sign it only shrinks.

    >>> inner = 0.01 * np.sqrt([[2.0], [2.0]])
    >>> sw.theory.units.blow_up_time(np.array([0.5]), np.array([0.01, -0.02]), inner).round(6).tolist()
    [100.0, inf]
    """
    for name, array in {"spectrum": spectrum, "outer": outer, "inner": inner}.items():
        checks.numbers_in(name, array)
    # In units of its largest weight, and time of one over that: squares are within the numbers that there are.
    largest = np.maximum(np.abs(outer), np.abs(inner).max(axis=1, initial=0.0))
    largest = np.where(largest > 0, largest, 1.0)
    outer, inner = outer / largest, inner / largest[:, None]
    toward = np.where(outer == 0, np.sum(spectrum * inner**2, axis=1), outer)  # where v goes first
    # s runs upwards first.
    rates = 4 * np.where(toward < 0, -1.0, 1.0)[:, None] * np.where(inner == 0, 0.0, spectrum)
    half, first = inner**2 / 2, outer**2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        turn = _turning(rates, half, first)
        turns = np.isfinite(turn)
        # Both parts begin at the turning point or the least Q, the only place where 1/√Q can have a sharp peak.
        at = np.where(turns, turn, _lowest(rates, half))[:, None]
        least = np.where(turns, 0.0, first + _grown(rates, half, at)[:, 0])[:, None]
        here, away = half * np.exp(rates * at), np.where(turns, -1.0, 1.0)[:, None]
        nodes, weights = np.exp(_AHEAD - np.exp(-_AHEAD)), (1 + np.exp(-_AHEAD)) * (_AHEAD[1] - _AHEAD[0])
        s = nodes / np.abs(rates).max(axis=1, initial=0.0)[:, None]
        after = np.sum(weights * s / _root(least + _grown(away * rates, here, s)), axis=1)
        nodes = np.exp(np.pi / 2 * np.sinh(_WITHIN))
        weights = np.pi / 2 * np.cosh(_WITHIN) / (1 + nodes) * (_WITHIN[1] - _WITHIN[0])
        s = at * nodes / (1 + nodes)
        before = np.sum(weights * s / _root(least + _grown(-rates, here, s)), axis=1)
        grows = np.any(away * rates > 0, axis=1) & (toward != 0)
        return np.where(grows, before + after, np.inf) / largest


def _root(square: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(square, 1e-300))


def _grown(rates: np.ndarray, half: np.ndarray, s: np.ndarray) -> np.ndarray:
    r"""$\sum_d h_d\,(e^{r_ds} - 1)$, of each unit at its own s."""
    terms = (h * np.expm1(np.minimum(r * s, 700.0)) for r, h in zip(rates.T[..., None], half.T[..., None], strict=True))
    return sum(terms, np.zeros(s.shape))


def _turning(rates: np.ndarray, half: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The first root of Q upwards from 0, of each unit; nan where there is none."""
    s = np.zeros(first.size)
    for _ in range(_STEPS):
        slope = np.sum(half * rates * np.exp(rates * s[:, None]), axis=1)
        height = first + _grown(rates, half, s[:, None])[:, 0]
        s = np.where(slope < 0, s - height / slope, np.nan)
    return s


def _lowest(rates: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Where Q is least, upwards from 0, of each unit that has any growing rate."""
    slopes = half * rates
    rising, falling = (np.sum(np.maximum(sign * slopes, 0.0), axis=1) for sign in (1, -1))
    slowest = np.min(np.abs(rates), axis=1, where=slopes != 0, initial=np.inf)
    low, high = np.zeros(len(rates)), np.log(np.maximum(falling / rising, 1.0)) / (2 * slowest)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        falls = np.sum(slopes * np.exp(rates * middle[:, None]), axis=1) < 0
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return low
