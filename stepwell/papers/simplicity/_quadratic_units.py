"""What random initial weights make of quadratic units: how many never grow, and how close the largest two are."""

from typing import Any

import numpy as np
import scipy.integrate
import scipy.stats


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
    found: Any = scipy.integrate.quad(integrand, 0, np.inf, epsrel=1e-9, epsabs=0, limit=200)
    return units * (units - 1) * float(found[0])
