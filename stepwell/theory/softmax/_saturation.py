r"""How sharp softmax weights are: the exponential regime, and what comes after.

At sharpness a the concentration $R = \mathbb E\sum_lp_l^2$ (`stepwell.tasks.softmax_moments`) is $e^{a^2}/L$ while
a few tokens cannot dominate, and saturates at 1.
"""

import numpy as np
import scipy
from jaxtyping import Float

from stepwell import _check
from stepwell._softmax_moments import softmax_moments


def concentration_ratio(sharpness: Float[np.ndarray, " a"], context: int) -> Float[np.ndarray, " a"]:
    r"""$R/(e^{a^2}/L)$: 1 where the spectral theory holds, less where the softmax saturates."""
    return softmax_moments(sharpness, context).concentration * context * np.exp(-(sharpness**2))


def saturation_point(context: int, ratio: float) -> float:
    r"""$a^2$ at which `concentration_ratio` has fallen to `ratio`."""
    _check.whole("context", context, least=2)
    ratio = _check.number("ratio", ratio, least=1e-6, most=1 - 1e-6)

    def above(square: float) -> float:
        return float(concentration_ratio(np.array([square**0.5]), context)[0]) - ratio

    # R is at most 1, so the ratio is below L exp(-a^2).
    return scipy.optimize.root_scalar(above, bracket=(1e-12, np.log(context / ratio) + 1), xtol=1e-9).root


def annealed_threshold(context: int) -> float:
    r"""$a^2 = \tfrac23\ln L$: the mean R leaves $e^{a^2}/L$ there, being half of it at about this point."""
    return 2 / 3 * float(np.log(_check.whole("context", context)))


def typical_threshold(context: int) -> float:
    r"""$a^2 = \tfrac12\ln L$: most realisations leave $e^{a^2}/L$ there, before the mean does."""
    return 1 / 2 * float(np.log(_check.whole("context", context)))


def concentration_exponent(sharpness: Float[np.ndarray, " *a"], context: int) -> Float[np.ndarray, " *a"]:
    r"""$\log_LR$ by the random energy model, $u = a^2/(2\ln L)$: a heuristic, for the leading exponent only.

    2u - 1 to the annealed threshold u = 1/3, then $-(1-u)^2/(4u)$ to freezing at u = 1, then 0. At L = 1e4 and
    $a^2 = 9$ it gives R = 0.29 where the exact value is 0.053.
    """
    u = sharpness**2 / (2 * np.log(_check.whole("context", context, least=2)))
    between = -((1 - u) ** 2) / (4 * np.maximum(u, 1 / 3))
    return np.where(u < 1 / 3, 2 * u - 1, np.where(u < 1, between, 0.0))


def expected_maximum(context: int) -> float:
    r"""$\mathbb E\max_lz_l$ of L standard normals: the mean of x that a hardmax attends to, by quadrature."""
    context = _check.whole("context", context)
    far = -float(scipy.special.ndtri(1e-16 / context))
    z = np.linspace(-far, far, 4001)
    density = np.exp(-(z**2) / 2 + (context - 1) * scipy.special.log_ndtr(z))
    # The trapezoidal rule: its error on so smooth a function is that of rounding.
    return float(z @ density / density.sum())


def hardmax_concentration(sharpness: Float[np.ndarray, " *a"], context: int) -> Float[np.ndarray, " *a"]:
    r"""$R \approx 1 - \mathbb E[\max z]/a$ for a well above $\sqrt{2\ln L}$, since
    $\mathbb E\sum_lp_lz_l = a(1-R)$ tends to the maximum.
    """
    return 1 - expected_maximum(context) / sharpness
