r"""Softmax weights over Gaussian scores: their moments at any number of tokens, and how they saturate.

At sharpness a the concentration $R = \mathbb E\sum_lp_l^2$ is $e^{a^2}/L$ while no few tokens dominate, at most 1.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

_TOLERANCE = 1e-12
"""What the grids leave out, relative to R and T."""
_LOG_STEP = 0.3
"""In log t. The trapezoidal rule errs by about exp(-pi^2 / step), which is 5e-15."""
_NEGLIGIBLE = 1e-24
"""What a kernel may be at the ends of its band: R and T are at least 1/L, and L is 1e6 at the most."""


class SoftmaxMoments(NamedTuple):
    r"""Moments of $p = \mathrm{softmax}(a z)$, $z_1, \dots, z_L \sim \mathcal N(0, 1)$, at each sharpness a.

    `concentration` is $R = \mathbb E\sum_l p_l^2$, from 1/L (all tokens have equal weight) to 1 (one token has all of
    it), and `second` $T = \mathbb E(\sum_l p_l z_l)^2$. By Stein's lemma $\mathbb E\sum_l p_l z_l = a(1 - R)$.
    """

    concentration: Float[np.ndarray, " a"]
    second: Float[np.ndarray, " a"]


@checked
def softmax_moments(sharpness: Float[np.ndarray, " a"], context: int) -> SoftmaxMoments:
    r"""Return moments R and T of softmax weights $p = \mathrm{softmax}(a z)$ over L tokens with Gaussian scores.

    With $1/Z^k = \int_0^\infty t^{k-1} e^{-tZ} dt/(k-1)!$ the tokens separate:

    $R = L\int t B_0 C^{L-1} dt$, $T = L\int t B_2 C^{L-1} dt + L(L-1)\int t A_1^2 C^{L-2} dt$,

    $C(t) = \mathbb E e^{-te^{az}}$, $A_1 = \mathbb E[z e^{az-te^{az}}]$, $B_k = \mathbb E[z^k e^{2az-te^{az}}]$.

    Both integrals, over z and over log t, are trapezoidal sums, which converge geometrically here. Relative errors are
    below 1e-9 for L up to 1e6. The cost is below a millisecond for each a up to 10, and grows as a beyond.

    **Arguments:**

    - `sharpness`: the values of a, the standard deviation of the scores; each at least 0.
    - `context`: L, the number of tokens.

    **Returns:** `SoftmaxMoments` with the arrays `concentration` (R) and `second` (T), one number for each a.

    **Example:** weights of 100 tokens are equal at a = 0, and concentrate on few tokens as a grows.

    >>> moments = sw.theory.softmax.softmax_moments([0.0, 1.0, 3.0], 100)
    >>> moments.concentration.round(4).tolist()
    [0.01, 0.0255, 0.2869]
    """
    context = checks.whole("context", context)
    if not np.all(np.isfinite(sharpness)) or np.any(sharpness < 0):
        raise InvalidInput("sharpness has an entry that is negative or not finite; every entry must be at least 0")
    moments = np.empty((2, sharpness.size))
    for column, a in enumerate(sharpness):
        moments[:, column] = 1 / context if a == 0 else _moments(float(a), context)
    return SoftmaxMoments(*moments)


def _moments(a: float, context: int) -> tuple[float, float]:
    # A token farther out than `far` adds less than the tolerance to R or T, which are at least 1/L.
    far = -float(scipy.special.ndtri(_TOLERANCE / context**2))
    # exp(-t e^{az}) grows beyond |Im z| = pi/(2a): the step must be small against that, and against the Gaussian's 1.
    step = min(0.3, _LOG_STEP / a)
    places = np.arange(-int(np.ceil(far / step)), int(np.ceil(far / step)) + 1)
    z = step * places
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    # Z lies between e^{a max z}, whose maximum is below `low` with the probability of the tolerance, and E[Z^2]^{1/2}.
    low = float(scipy.special.ndtri((_TOLERANCE / context) ** (1 / context)))
    first = -min(a**2, a * far) - np.log(context) + 0.5 * np.log(_TOLERANCE)
    last = np.log(-2 * np.log(_TOLERANCE)) - a * low
    grid = np.arange(int(np.floor(first / _LOG_STEP)), int(np.ceil(last / _LOG_STEP)))
    means = _lattice_means if step < 0.3 else _dense_means
    lost, a1, b0, b2 = means(grid, places, a * step, np.stack([weights, weights * z, weights * z**2]))
    others = np.log1p(-np.minimum(lost, 1.0 - 1e-16))
    alone = np.exp((context - 1) * others)
    r = context * float(b0 @ alone) * _LOG_STEP
    t = context * float(b2 @ alone) * _LOG_STEP
    if context > 1:
        t += context * (context - 1) * float(a1**2 @ np.exp((context - 2) * others)) * _LOG_STEP
    return r, t


def _kernels(tilt: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1 - exp(-u) without cancellation, u exp(-u) and u² exp(-u), at u = exp(tilt)."""
    power = np.exp(np.minimum(tilt, 700.0))
    once = power * np.exp(-power)
    return -np.expm1(-power), once, power * once


def _dense_means(grid: np.ndarray, places: np.ndarray, unit: float, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    r"""1 - C, tA₁, t²B₀ and t²B₂ at each log t of the grid."""
    lost, once, twice = _kernels(_LOG_STEP * grid[:, None] + unit * places)
    return lost @ weights[0], once @ weights[1], twice @ weights[0], twice @ weights[2]


def _lattice_means(grid: np.ndarray, places: np.ndarray, unit: float, weights: np.ndarray) -> tuple[np.ndarray, ...]:
    r"""The same where az and log t are on one lattice: u depends on the sum of their places only, and the sums over z
    are convolutions with kernels that are 0, or 1, beyond some places."""
    band = np.arange(int(np.log(_NEGLIGIBLE) / unit), int(np.log(-2 * np.log(_NEGLIGIBLE)) / unit) + 1)
    # A sum over z at log t is one over places -q of z, from the band: q = place of log t + place of z.
    wanted = grid + places[-1] - band[0]

    def mean(kernel: np.ndarray, each: np.ndarray) -> np.ndarray:
        return _entries(np.convolve(kernel, each[::-1]), wanted)

    lost, once, twice = _kernels(unit * band)
    beyond = np.concatenate([[0.0], np.cumsum(weights[0][::-1])])[np.clip(grid + places[-1] - band[-1], 0, places.size)]
    return mean(lost, weights[0]) + beyond, mean(once, weights[1]), mean(twice, weights[0]), mean(twice, weights[2])


def _entries(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Entries of an array; 0 outside it."""
    inside = (places >= 0) & (places < values.size)
    return np.where(inside, values[np.clip(places, 0, values.size - 1)], 0.0)


@checked
def concentration_ratio(sharpness: Float[np.ndarray, " a"], context: int) -> Float[np.ndarray, " a"]:
    r"""Return the concentration of softmax weights over its value to leading order, $R/(e^{a^2}/L)$.

    It is 1 where the spectral theory holds, and less where the softmax saturates. $R = \mathbb E\sum_lp_l^2$ is exact
    (`softmax_moments`).

    **Arguments:**

    - `sharpness`: a, the standard deviation of the scores; at least 0.
    - `context`: the number of tokens, L.

    **Returns:** the ratio at each a.

    **Example:** at $a^2$ = 0.5, 1, 2 and 4.

    >>> squares = np.array([0.5, 1.0, 2.0, 4.0])
    >>> sw.theory.softmax.concentration_ratio(np.sqrt(squares), 100).round(3).tolist()
    [0.986, 0.94, 0.719, 0.231]
    """
    return softmax_moments(sharpness, context).concentration * context * np.exp(-(sharpness**2))


@checked
def saturation_point(context: int, ratio: float) -> float:
    """Return the squared sharpness $a^2$ at which `concentration_ratio` has fallen to a given value.

    **Arguments:**

    - `context`: the number of tokens, L, at least 2.
    - `ratio`: the value, from 1e-6 to 1 - 1e-6.

    **Returns:** $a^2$.

    **Example:** the leading order is off by 10 %, and by half.

    >>> [round(sw.theory.softmax.saturation_point(100, ratio), 2) for ratio in (0.9, 0.5)]
    [1.25, 2.77]
    """
    checks.whole("context", context, least=2)
    ratio = checks.number("ratio", ratio, least=1e-6, most=1 - 1e-6)

    def above(square: float) -> float:
        return float(concentration_ratio(np.array([square**0.5]), context)[0]) - ratio

    # R is at most 1, so the ratio is below L exp(-a^2).
    return scipy.optimize.root_scalar(above, bracket=(1e-12, np.log(context / ratio) + 1), xtol=1e-9).root


class Thresholds(NamedTuple):
    """Squared sharpness at which the mean concentration (`annealed`) and a typical one leave their leading order."""

    annealed: float
    typical: float


@checked
def thresholds(context: int) -> Thresholds:
    r"""Return the squared sharpness $a^2$ at which the concentration R leaves $e^{a^2}/L$.

    Its mean leaves it at $\tfrac23\ln L$, where R is about half of that; most realizations before, at $\tfrac12\ln L$.

    **Arguments:**

    - `context`: the number of tokens, L.

    **Returns:** the `Thresholds`.

    **Example:** `saturation_point(1000, 0.5)` is 4.13.

    >>> [round(square, 2) for square in sw.theory.softmax.thresholds(1000)]
    [4.61, 3.45]
    """
    log = float(np.log(checks.whole("context", context)))
    return Thresholds(2 / 3 * log, 1 / 2 * log)


@checked
def concentration_exponent(sharpness: Float[np.ndarray, " *a"], context: int) -> Float[np.ndarray, " *a"]:
    r"""Return the exponent $\log_LR$ of the concentration by the random energy model.

    It is a heuristic, for the leading exponent only. With $u = a^2/(2\ln L)$ it is 2u - 1 to the annealed threshold u =
    1/3, then $-(1-u)^2/(4u)$ to freezing at u = 1, then 0. At L = 1e4 and $a^2 = 9$ it gives R = 0.29 where the exact
    value is 0.053.

    **Arguments:**

    - `sharpness`: a, the standard deviation of the scores, at least 0; an array of any shape.
    - `context`: the number of tokens, L, at least 2.

    **Returns:** the exponent, from -1 (all tokens alike) to 0 (few tokens), in the shape of `sharpness`.

    **Example:**

    >>> sw.theory.softmax.concentration_exponent([0.0, 1.0, 3.0, 5.0], 10_000).round(3).tolist()
    [-1.0, -0.891, -0.134, 0.0]
    """
    u = sharpness**2 / (2 * np.log(checks.whole("context", context, least=2)))
    between = -((1 - u) ** 2) / (4 * np.maximum(u, 1 / 3))
    return np.where(u < 1 / 3, 2 * u - 1, np.where(u < 1, between, 0.0))


@checked
def expected_maximum(context: int) -> float:
    r"""Return the mean of the largest of L standard normals, $\mathbb E\max_lz_l$, by quadrature.

    It is the mean of x along the direction of the scores, at the token that a hardmax attends to.

    **Arguments:**

    - `context`: the number of tokens, L.

    **Returns:** the mean.

    **Example:** of two normals it is $1/\sqrt\pi$.

    >>> [round(sw.theory.softmax.expected_maximum(context), 4) for context in (2, 100)]
    [0.5642, 2.5076]
    """
    context = checks.whole("context", context)
    far = -float(scipy.special.ndtri(1e-16 / context))
    z = np.linspace(-far, far, 4001)
    density = np.exp(-(z**2) / 2 + (context - 1) * scipy.special.log_ndtr(z))
    # The trapezoidal rule: its error on so smooth a function is that of rounding.
    return float(z @ density / density.sum())


@checked
def hardmax_concentration(sharpness: Float[np.ndarray, " *a"], context: int) -> Float[np.ndarray, " *a"]:
    r"""Return the concentration of sharp softmax weights, $R \approx 1 - \mathbb E[\max z]/a$.

    It holds for a well above $\sqrt{2\ln L}$, since $\mathbb E\sum_lp_lz_l = a(1-R)$ tends to the maximum.

    **Arguments:**

    - `sharpness`: a, the standard deviation of the scores, above 0; an array of any shape.
    - `context`: the number of tokens, L.

    **Returns:** the approximate R, in the shape of `sharpness`.

    **Example:** the exact values are 0.752 and 0.875.

    >>> sw.theory.softmax.hardmax_concentration([10.0, 20.0], 100).round(3).tolist()
    [0.749, 0.875]
    """
    return 1 - expected_maximum(context) / sharpness
