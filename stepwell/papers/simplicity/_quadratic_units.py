r"""Units that are quadratic in u, in the constant field of small weights: $\dot v = u^\top S u$, $\dot u = 2 v S u$.

$|u|^2 - 2 v^2$ stays as it is. With $s = \int v\,dt$, the entries of u along eigenvectors of S, of eigenvalues
$\sigma_d$, are $u_d(0) e^{2 \sigma_d s}$, and $v^2 = Q(s) = v_0^2 + \frac12 \sum_d u_d(0)^2 (e^{4 \sigma_d s} - 1)$.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.stats
from jaxtyping import Float

Rates = Float[np.ndarray, " entry"]


def blow_up_time(rates: Rates, v: float, u: Rates) -> float:
    r"""When the weights of a unit become infinite, $\int ds/\sqrt{Q(s)}$; infinite if they never do.

    If v > 0, s rises; Q is convex, and where it has a root ahead, v changes its sign there and s falls from then on. Of
    v < 0 the time is that of -v in the field -S.
    """
    if v < 0:
        rates, v = -rates, -v
    growing, falling = (bool(np.any(sign * rates[u != 0] > 0)) for sign in (1, -1))

    def square(s: float) -> float:
        return v**2 + 0.5 * float(np.sum(u**2 * np.expm1(4 * rates * s)))

    def slope(s: float) -> float:
        return float(np.sum(rates * u**2 * np.exp(4 * rates * s)))

    with np.errstate(over="ignore"):
        place = lowest = _lowest(slope, 1 / np.abs(rates).max())
        turns = square(lowest) <= 0
        if not (falling if turns else growing):
            return np.inf
        if turns:
            place = _root(square, 0.0, lowest)
        least, there = 0.0 if turns else square(lowest), u**2 * np.exp(4 * rates * place)

        def beside(x: float) -> float:
            return least + 0.5 * float(np.sum(there * np.expm1(4 * rates * x)))

        # From the root, or from a small Q, the integrand is smooth in w, x = ±w².
        signs = (-1, -1) if turns else (-1, 1)
        return math.fsum(
            _integral(lambda w, sign=sign: 2 * w / np.sqrt(max(beside(sign * w**2), 1e-300)), end)
            for sign, end in zip(signs, (place**0.5, np.inf), strict=True)
        )


def _lowest(slope: Callable[[float], float], unit: float) -> float:
    """Where the slope of a convex function has its root, 0 if it rises from there; far ahead if it never rises."""
    if slope(0.0) >= 0:
        return 0.0
    ahead = unit
    while slope(ahead) < 0 and ahead < 100 * unit:
        ahead *= 2
    return ahead if slope(ahead) < 0 else _root(slope, 0.0, ahead)


def _root(function: Callable[[float], float], start: float, end: float) -> float:
    found: Any = scipy.optimize.brentq(function, start, end, xtol=1e-16)
    return float(found)


def _integral(integrand: Callable[[float], float], end: float) -> float:
    """With `full_output` it gives no warning where rounding ends the refinement."""
    found: Any = scipy.integrate.quad(integrand, 0, end, epsrel=1e-9, epsabs=0, limit=200, full_output=1)
    return float(found[0])


def dead_fraction(dim: int) -> float:
    """Of units with Gaussian weights, if S is positive definite: v < 0 and 2v² > |u|², so that v stays below zero."""
    return float(scipy.stats.f.cdf(2 / dim, dim, 1)) / 2


def tail(units: int) -> float:
    r"""Limit of x P(c > x), where $c = g_1 g_2/(g_1 - g_2)$ of the largest two of some standard normal numbers.

    c is large if the two are close, $g_1 - g_2 = g^2/c$: the limit is $H(H - 1) \int g^2 \varphi^2 \Phi^{H-2} dg$.
    """

    def integrand(g: float) -> float:
        return float(g**2 * scipy.stats.norm.pdf(g) ** 2 * scipy.stats.norm.cdf(g) ** (units - 2))

    # Of negative numbers no unit grows.
    return units * (units - 1) * _integral(integrand, np.inf)
