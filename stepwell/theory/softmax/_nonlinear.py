"""Targets that are not linear: what the heads trained on linear ones make of them."""

import math
from collections.abc import Callable
from math import factorial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss, hermeval

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

Target = Callable[[np.ndarray], np.ndarray]
"""f of the single index s = u·x, |u| = 1, entry by entry."""

_NODES = 120
_MOST_DEGREES = 100
"""The factorials of more than 170 are beyond float64."""


class HeadWeights(NamedTuple):
    r"""ω and μ of one head for d coordinates."""

    omega: float
    mu: float


@checked
def linear_head(dim: int, context: int, noise: float = 0.0, signal: float = 1.0) -> HeadWeights:
    r"""Return the head of `flow_limit` for one linear target, $\omega = d^{-1/2}$, $\mu = \sqrt d/(1+\rho)$.

    $\rho = e\phi d/L$, and φ is 1 + noise/signal.

    **Arguments:**

    - `dim`: the dimension d of the inputs.
    - `context`: the context length L.
    - `noise`: the variance of the noise of labels.
    - `signal`: the variance of labels without noise, λd; above 0.

    **Returns:** `HeadWeights` with `omega` and `mu`.

    **Example:**

    >>> head = sw.theory.softmax.linear_head(50, 1000, noise=0.1)
    >>> print(f"{head.omega:.4f} {head.mu:.3f}")
    0.1414 6.151
    """
    dim, context = checks.whole("dim", dim), checks.whole("context", context)
    phi = 1 + checks.number("noise", noise, least=0.0) / checks.number("signal", signal, least=0.0, above=True)
    return HeadWeights(dim**-0.5, dim**0.5 / (1 + np.e * phi * dim / context))


@checked
def hermite_coefficients(target: Target, degree: int) -> Float[np.ndarray, " degree"]:
    r"""Return the Hermite coefficients of a function.

    $c_k = \mathbb E[f(s)\,\mathrm{he}_k(s)]$, s standard normal, $\mathrm{he}_k = \mathrm{He}_k/\sqrt{k!}$. By
    Gauss-Hermite quadrature of 120 nodes: exact for polynomials, good for what they approximate.

    **Arguments:**

    - `target`: the function f of an array of s, entry by entry.
    - `degree`: the highest degree, at least 0.

    **Returns:** $c_k$ for k from 0 to `degree`.

    **Example:** $s^3 = 3\,\mathrm{he}_1 + \sqrt6\,\mathrm{he}_3$.

    >>> coefficients = sw.theory.softmax.hermite_coefficients(lambda s: s**3, 4)
    >>> coefficients[[1, 3]].round(3).tolist()
    [3.0, 2.449]
    """
    nodes, weights = _gauss()
    degree = checks.whole("degree", degree, least=0)
    if degree > _MOST_DEGREES:
        raise InvalidInput(f"degree is {degree}; it must be at most {_MOST_DEGREES}")
    values = weights * target(nodes)
    return np.array([values @ _normalized(k, nodes) for k in range(degree + 1)])


@checked
def hermite_target(coefficients: Float[np.ndarray, " degree"]) -> Target:
    r"""Return the function $f(s) = \sum_kc_k\mathrm{he}_k(s)$ with given Hermite coefficients.

    **Arguments:**

    - `coefficients`: $c_k$ for k from 0, of the normalized polynomials $\mathrm{he}_k = \mathrm{He}_k/\sqrt{k!}$.

    **Returns:** f, a function of an array of s, entry by entry.

    **Example:** $\mathrm{he}_2 = (s^2-1)/\sqrt2$.

    >>> f = sw.theory.softmax.hermite_target([0.0, 0.0, 1.0])
    >>> f([0.0, 1.0, 2.0]).round(3).tolist()
    [-0.707, 0.0, 2.121]
    """
    plain = coefficients / np.sqrt([float(factorial(k)) for k in range(coefficients.size)])
    return lambda s: hermeval(s, plain)


@checked
def nonlinear_loss(target: Target, dim: int, context: int, head: HeadWeights, *, noise: float = 0.0) -> float:
    r"""Return the loss of a head on y = f(u·x) + ε, |u| = 1, to first order in 1/L.

    With $w = \omega q$, $a = |w|$ and $\tilde f(w) = \mathbb Ef(x+w)$,

    $\mathbb E_q\big[(f(q)-\mu\tilde f(w))^2 + 2(f(q)-\mu\tilde f(w))\,\mu\tfrac{e^{a^2}}L(\tilde f(2w)-\tilde f(w))
    + \mu^2\tfrac{e^{a^2}}L\big(\mathbb E_x(f(x+2w)-\tilde f(w))^2+\sigma^2\big)\big]$.

    Only s = u·q matters to f; the other coordinates give $(1-2\omega^2)^{-(d-1)/2}$. Needs $2\omega^2 < 1$.

    **Arguments:**

    - `target`: the function f of an array of s = u·x, entry by entry.
    - `dim`: the dimension d of the inputs.
    - `context`: the context length L.
    - `head`: the `omega` and `mu` of the head, for instance those of `linear_head`.
    - `noise`: the variance σ² of the noise of labels.

    **Returns:** the expected squared error; the target has no noise.

    **Example:** a head trained on linear targets, tested on a linear and on a quadratic one of the same variance.

    >>> theory = sw.theory.softmax
    >>> head = theory.linear_head(50, 1000, noise=0.1)
    >>> for target in (lambda s: s, lambda s: (s**2 - 1) / 2**0.5):
    ...     print(f"{theory.nonlinear_loss(target, 50, 1000, head, noise=0.1):.3f}")
    0.135
    0.912
    """
    dim, context = checks.whole("dim", dim), checks.whole("context", context)
    noise = checks.number("noise", noise, least=0.0)
    omega, mu = head
    left = 1 - 2 * omega**2
    if left <= 0:
        raise InvalidInput(f"omega is {omega:g}; the expansion needs 2*omega^2 below 1, so take dim above 2")
    if -dim / 2 * math.log(left) > 700:
        raise InvalidInput(f"dim is {dim}, with which the loss at omega {omega:g} overflows; take omega near dim**-0.5")
    nodes, weights = _gauss()

    def shifted(shift: np.ndarray) -> np.ndarray:
        return target(shift[:, None] + nodes)

    bias = (target(nodes) - mu * shifted(omega * nodes) @ weights) ** 2 @ weights
    # The factor exp(omega^2 s^2) makes s wider.
    s = nodes * left**-0.5
    mean, far = shifted(omega * s) @ weights, shifted(2 * omega * s)
    cross = 2 * (target(s) - mu * mean) * mu * (far @ weights - mean)
    spread = mu**2 * ((far - mean[:, None]) ** 2 @ weights + noise)
    return float(bias + left ** (-dim / 2) / context * ((cross + spread) @ weights))


@checked
def nonlinear_leading_loss(
    coefficients: Float[np.ndarray, " degree"], dim: int, context: int, head: HeadWeights, *, noise: float = 0.0
) -> float:
    r"""Return the `nonlinear_loss` to leading order in d at $\omega = d^{-1/2}$, from Hermite coefficients.

    $c_1^2(1-c)^2 + \sum_{k\ge2}c_k^2 + c_0^2(1-\mu)^2 + \mu^2\tfrac eL\big(\sum_{k\ge1}c_k^2+\sigma^2\big)$,
    $c = \mu\omega$.

    Degrees from 2 up are noise: as signal they enter at relative order $d^{-(k-1)/2}$. A mean $c_0$ costs most, for μ
    of order √d multiplies it: center the labels.

    **Arguments:**

    - `coefficients`: $c_k$ for k from 0, as `hermite_coefficients` gives them.
    - `dim`: the dimension d of the inputs.
    - `context`: the context length L.
    - `head`: the head, of which only `mu` is used; ω is taken as $d^{-1/2}$.
    - `noise`: the variance σ² of the noise of labels.

    **Returns:** the expected squared error; the target has no noise.

    **Example:** a constant, a linear and a quadratic target of equal power.

    >>> theory = sw.theory.softmax
    >>> head = theory.linear_head(50, 1000, noise=0.1)
    >>> [round(theory.nonlinear_leading_loss(row, 50, 1000, head, noise=0.1), 3) for row in np.eye(3)]
    [26.547, 0.13, 1.113]
    """
    context = checks.whole("context", context)
    squares = np.zeros(max(2, coefficients.size))
    squares[: coefficients.size] = coefficients**2
    c = head.mu * checks.whole("dim", dim) ** -0.5
    kept = squares[1] * (1 - c) ** 2 + squares[2:].sum() + squares[0] * (1 - head.mu) ** 2
    return float(kept + head.mu**2 * np.e / context * (squares[1:].sum() + noise))


def _gauss() -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = hermegauss(_NODES)
    return nodes, weights / weights.sum()


def _normalized(k: int, s: np.ndarray) -> np.ndarray:
    return hermite_target(np.eye(k + 1)[k])(s)
