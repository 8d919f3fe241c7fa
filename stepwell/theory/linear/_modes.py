"""Scalars of the task along shared eigenvectors, where the input and task covariances commute."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._arguments import checked
from stepwell._errors import InvalidInput

from .._task import RegressionTask, require_regression
from ._moments import label_power, mean_inverse_length


@dataclass(frozen=True)
class Modes:
    r"""Modes d in falling order of gain, as `components` has them.

    - `directions`: $e_d$ in column d.
    - `variances`: $\lambda_d$; `task_variances`: $\omega_d$.
    - `cross`: $m_d = \lambda_d\omega_d$.
    - `second`: $c_d = (1+\nu)\lambda_d^2\omega_d + \nu(\mathrm{tr}(\Omega\Lambda)+\sigma^2)\lambda_d$.
    """

    directions: Float[np.ndarray, "dim mode"]
    variances: Float[np.ndarray, " mode"]
    task_variances: Float[np.ndarray, " mode"]
    cross: Float[np.ndarray, " mode"]
    second: Float[np.ndarray, " mode"]

    @property
    def driving(self) -> Float[np.ndarray, " mode"]:
        r"""$g_d = \lambda_d m_d$, eigenvalue of $M\Lambda$: what moves small weights. The paper's $\lambda_d^2$."""
        return self.variances * self.cross

    @property
    def curvature(self) -> Float[np.ndarray, " mode"]:
        r"""$\lambda_d c_d$, what holds the weights back."""
        return self.variances * self.second

    @property
    def ends(self) -> Float[np.ndarray, " mode"]:
        r"""$a_d = m_d/c_d$, eigenvalue of the map once the mode is learned."""
        return self.cross / self.second

    @property
    def gains(self) -> Float[np.ndarray, " mode"]:
        r"""$\gamma_d = \lambda_d m_d^2 / c_d$, the fall of the loss."""
        return self.driving * self.ends


@checked
def modes(task: RegressionTask) -> Modes:
    r"""The modes of a task: its scalars along the shared eigenvectors of $\Lambda$ and $\Omega$.

    Eigenvectors are those of $\Lambda$ and, within each of its eigenspaces, of $\Omega$.
    Raises `InvalidInput` if the covariance is singular, or the two covariances do not commute.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.

    **Returns:** the `Modes`: eigenvectors, eigenvalues and moments of each mode, in falling order of gain.

    **Example:** the second axis has the smaller variance, but its task vectors are larger, so it comes first.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10, task_covariance=np.diag([1.0, 2.0]))
    >>> modes = sw.theory.linear.modes(task)
    >>> modes.variances.round(3).tolist(), modes.task_variances.round(3).tolist(), modes.cross.round(3).tolist()
    ([0.4, 0.6], [2.0, 1.0], [0.8, 0.6])
    """
    require_regression(task)
    lam, vectors = np.linalg.eigh(task.covariance)
    if lam[0] <= 0:
        raise InvalidInput("the covariance is singular; leave out the directions in which the inputs do not vary")
    tolerance = lam.size * np.sqrt(np.finfo(float).eps)
    breaks = np.flatnonzero(np.diff(lam) > tolerance * lam[-1]) + 1
    for block in np.split(np.arange(lam.size), breaks):
        space = vectors[:, block]
        vectors[:, block] = space @ np.linalg.eigh(space.T @ task.task_covariance @ space)[1]
    shared = vectors.T @ task.task_covariance @ vectors
    omega = np.diagonal(shared)
    off_diagonal = float(np.abs(shared - np.diag(omega)).max())
    if off_diagonal > tolerance * np.abs(shared).max():
        raise InvalidInput(
            "covariance and task_covariance have no common eigenvectors "
            f"(off-diagonal {off_diagonal:.2g}), which scalar equations need; use levels and drop_schedule, "
            "which need none"
        )
    # A rotation inside a block of nearly equal eigenvalues moves them a little.
    lam = np.einsum("id,ij,jd->d", vectors, task.covariance, vectors)
    order = np.argsort(-lam * omega, kind="stable")
    lam, omega = lam[order], np.clip(omega[order], 0.0, None)
    nu = mean_inverse_length(task)
    second = (1 + nu) * lam**2 * omega + nu * (label_power(task) + task.noise_variance) * lam
    return Modes(vectors[:, order], lam, omega, lam * omega, second)
