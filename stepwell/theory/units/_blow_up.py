"""Quadratic units: each grows by itself, and faster the larger it is."""

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

_NODES = np.linspace(-4.5, 4.5, 400)
"""Of the double exponential formula, $s = \\exp(\\frac\\pi2\\sinh x)$: errors are rounding."""
_NEWTON = 100
"""Steps towards a turning point, which approach a root of a convex function from one side. Some ten do."""


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
    signs = np.where(outer < 0, -1.0, 1.0)
    rates = 4 * signs[:, None] * spectrum  # s runs upwards first
    half, first = inner**2 / 2, outer**2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        turn = _turning(rates, half, first)
        turns = np.isfinite(turn)
        at = np.where(turns, turn, 0.0)[:, None]
        scale = np.max(np.abs(rates) * (half > 0), axis=1)
        nodes, weights = np.exp(np.pi / 2 * np.sinh(_NODES)), np.pi / 2 * np.cosh(_NODES) * (_NODES[1] - _NODES[0])
        onward = nodes / scale[:, None]
        # Without a turning point upwards from 0; else downwards from it, s = turn - r².
        ahead = np.sum(weights * onward / np.sqrt(first[:, None] + _grown(rates, half, onward)), axis=1)
        grown = _grown(-rates, half * np.exp(rates * at), onward)
        back = np.sum(weights * onward / np.sqrt(grown), axis=1)
        # And down from 0 to it, which from there is as far up: s = turn (1 - x²), by Gauss and Legendre.
        part, gauss = np.polynomial.legendre.leggauss(100)
        part, gauss = (part + 1) / 2, gauss / 2
        below = _grown(-rates, half * np.exp(rates * at), at * part**2)
        until = np.sum(gauss * 2 * at * part / np.sqrt(below), axis=1)
        forever = np.where(turns, ~np.any((rates < 0) & (half > 0), axis=1), ~np.any((rates > 0) & (half > 0), axis=1))
        return np.where(forever, np.inf, np.where(turns, until + back, ahead))


def _grown(rates: np.ndarray, half: np.ndarray, s: np.ndarray) -> np.ndarray:
    r"""$\sum_d h_d\,(e^{r_ds} - 1)$, of each unit at its own s."""
    return np.einsum("ud,uds->us", half, np.expm1(np.minimum(rates[:, :, None] * s[:, None], 700.0)))


def _turning(rates: np.ndarray, half: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The first root of Q upwards from 0, of each unit; nan where there is none."""
    s = np.zeros(first.size)
    for _ in range(_NEWTON):
        slope = np.sum(half * rates * np.exp(rates * s[:, None]), axis=1)
        height = first + _grown(rates, half, s[:, None])[:, 0]
        s = np.where(slope < 0, s - height / slope, np.nan)
    return np.where(s < 1e6 / np.abs(rates).max(initial=1.0), s, np.nan)
