"""The slope of a line through runs, and how far it may be off by chance."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

CHANCE = 0.0027
"""How often a slope is further off than allowed: as three standard errors of a Gaussian."""


class Slope(NamedTuple):
    """A slope by least squares, and the half of its interval by Student's t: it misses the truth once in 370 times."""

    value: float
    allowed: float


def slope(x: Float[np.ndarray, " run"], y: Float[np.ndarray, " run"], others: Float[np.ndarray, " other"]) -> Slope:
    """Through independent runs of at least two different x. Their scatter is that of the y of other runs at one x."""
    centered = x - x.mean()
    value = centered @ y / (centered @ centered)
    error = others.std(ddof=1) / np.sqrt(centered @ centered)
    return Slope(float(value), float(scipy.stats.t.ppf(1 - CHANCE / 2, others.size - 1) * error))
