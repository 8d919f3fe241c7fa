"""Means of a function of a weighted sum of chi-squares, which is how the size of a query enters a head."""

from collections.abc import Callable

import numpy as np
import scipy
from jaxtyping import Float

Function = Callable[[Float[np.ndarray, " node"]], Float[np.ndarray, "value node"]]

_LEFT_OUT = 1e-10
"""Probability beyond either end of a rule."""

_SPACING = 0.12
"""Spacing of the table of a function, in the logarithm of its argument; the splines on it are of order six."""

_SMALLEST = 1e-9
"""Where a table begins, as part of the mean of its argument: below, a function is its value there."""


def mean_over_chi_squares(
    function: Function, scales: Float[np.ndarray, " term"], freedoms: Float[np.ndarray, " term"]
) -> Float[np.ndarray, " value"]:
    r"""$\mathbb E f(\sum_j s_j\chi^2_{\nu_j})$ for $s_j > 0$ and a smooth bounded f of a positive number.

    Terms are taken one by one: $f(s) \leftarrow \mathbb E f(s + s_j\chi^2_{\nu_j})$ on a table in log s, with splines
    between. The last term, often the only one, needs no table.
    """
    rules = [chi_square_rule(freedom) for freedom in freedoms]
    lowest = np.log(_SMALLEST * float(scales @ freedoms))
    highest = np.log(sum(scale * nodes[-1] for scale, (nodes, _) in zip(scales, rules, strict=True)))
    grid = np.linspace(lowest, highest, 2 + int((highest - lowest) / _SPACING))
    for scale, (nodes, weights) in zip(scales[1:], rules[1:], strict=True):
        function = _folded(
            scipy.interpolate.make_interp_spline(grid, function(np.exp(grid)), k=5, axis=1),
            grid,
            scale * nodes,
            weights,
        )
    nodes, weights = rules[0]
    return function(scales[0] * nodes) @ weights


def chi_square_rule(freedom: float) -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    r"""Nodes and weights for $\chi^2_\nu$: the trapezoidal rule in its logarithm, with its density.

    It converges geometrically for functions with a scale of their own, whatever that scale is, where the Gauss rule of
    Laguerre wants them smooth on the scale of 1.
    """
    low, high = 2 * scipy.special.gammaincinv(freedom / 2, _LEFT_OUT), scipy.special.chdtri(freedom, _LEFT_OUT)
    step = min(0.25, 0.5 * (2 / freedom) ** 0.5)
    log = np.arange(np.log(low), np.log(high) + step, step)
    density = freedom / 2 * log - np.exp(log) / 2
    weights = np.exp(density - density.max())
    return np.exp(log), weights / weights.sum()


def _folded(table, grid: np.ndarray, shifts: np.ndarray, weights: np.ndarray) -> Function:
    def folded(s: np.ndarray) -> np.ndarray:
        return table(np.clip(np.log(s[:, None] + shifts), grid[0], grid[-1])) @ weights

    return folded
