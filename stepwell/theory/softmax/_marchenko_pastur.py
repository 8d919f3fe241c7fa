r"""The law of Marchenko and Pastur, as far as ridge regression needs it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Resolvent(NamedTuple):
    r"""For $X^\top X/L$ with $\gamma = d/L$: `shrinkage` $\alpha m(-\alpha)$, the mean of $\alpha/(e+\alpha)$ over its
    eigenvalues e, and `root` $\sqrt{(1-\gamma+\alpha)^2+4\gamma\alpha}$.
    """

    shrinkage: Float[np.ndarray, " *size"]
    root: Float[np.ndarray, " *size"]


def resolvent(gamma: Float[np.ndarray, " *size"], alpha: Float[np.ndarray, " *size"]) -> Resolvent:
    r"""$m(-\alpha) = [-(1-\gamma+\alpha)+\sqrt{(1-\gamma+\alpha)^2+4\gamma\alpha}]/(2\gamma\alpha)$, stably.

    At α = 0 the shrinkage is the part of the eigenvalues that are zero.
    """
    b = 1 - gamma + alpha
    root = np.sqrt(b**2 + 4 * gamma * alpha)
    total = np.where(b + root == 0, 1.0, b + root)
    return Resolvent(np.where(b >= 0, 2 * alpha / total, (root - b) / (2 * gamma)), root)
