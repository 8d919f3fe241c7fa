r"""When plateaus are to be expected, and how flat they are: from the task and the predicted times of the drops alone.

On plateau m a head in the race grows as $\tau\dot v = \rho_m v^2$, whatever came before: with a time t left until the
drop it has $v = 1/(\rho_m t)$. Heads enter the map as $v^3$, to which those already learned respond.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory


@dataclass(frozen=True)
class ExpectedPlateaus:
    """Of each run and plateau m = 0, …, D.

    - `middle`: the time halfway between the drops on either side, in units of τ.
    - `size`: that of the head which makes the next drop, at that time; 0 on the last plateau.
    - `lasting`: whether the plateau is so long that what has yet to settle has shrunk from 1 to the initial weight w
      by its middle.
    """

    middle: Float[np.ndarray, "run plateau"]
    size: Float[np.ndarray, "run plateau"]
    lasting: Bool[np.ndarray, "run plateau"]


def expected_plateaus(
    task: InContextRegression, drops: Float[np.ndarray, "run drop"], *, init: float, heads: int
) -> ExpectedPlateaus:
    """Between the times `drops`; the last plateau is followed for as long as everything before it took."""
    edges = np.pad(drops, ((0, 0), (1, 0)))
    edges = np.append(edges, 2 * drops[:, -1:], axis=1)
    wait = np.diff(edges, axis=1)
    rates = np.append(theory.escape_rates(task), np.inf)
    return ExpectedPlateaus(
        edges[:, :-1] + wait / 2, 2 / (rates * wait), settling_rate(task, heads=heads) * wait / 2 >= -np.log(init)
    )


def settling_rate(task: InContextRegression, *, heads: int) -> float:
    """The slowest rate at which weights settle on a plateau of the path: half the least positive eigenvalue of the
    Hessian."""
    path = [theory.fixed_point_landscape(task, range(m), heads=heads) for m in range(1, task.dim + 1)]
    return min(float(point.eigenvalues[point.eigenvalues > point.tolerance][0]) for point in path) / 2
