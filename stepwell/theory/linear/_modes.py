"""Scalars of the task along shared eigenvectors, where the input and task covariances commute."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.spectrum import spectrum_of

from .._task_protocols import LinearTask, require_gaussian
from .._types import Matrix, PerMode
from ._context_moments import mean_inverse_length
from ._principal import principal, require_regular, rotated

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Modes:
    r"""Modes d in falling order of gain, as `components` has them.

    - `directions`: $e_d$ in column d.
    - `variances`: $\lambda_d$; `task_variances`: $\omega_d$.
    - `cross`: $m_d = \lambda_d\omega_d$.
    - `second`: $c_d = (1+\nu)\lambda_d^2\omega_d + \nu(\mathrm{tr}(\Omega\Lambda)+\sigma^2)\lambda_d$.
    - `remains`: $m_d - \gamma_d$, what the mode leaves in the loss when it is learned.
    """

    directions: Float[np.ndarray, "dim mode"]
    variances: PerMode
    task_variances: PerMode
    cross: PerMode
    second: PerMode
    remains: PerMode

    @property
    def driving(self) -> PerMode:
        r"""$g_d = \lambda_d m_d$, eigenvalue of $M\Lambda$: what moves small weights. The paper's $\lambda_d^2$."""
        return self.variances * self.cross

    @property
    def curvature(self) -> PerMode:
        r"""$\lambda_d c_d$, what holds the weights back."""
        return self.variances * self.second

    @property
    def ends(self) -> PerMode:
        r"""$a_d = m_d/c_d$, eigenvalue of the map once the mode is learned."""
        return self.cross / self.second

    @property
    def gains(self) -> PerMode:
        r"""$\gamma_d = \lambda_d m_d^2 / c_d$, the fall of the loss."""
        return self.driving * self.ends


@checked
def modes(task: LinearTask) -> Modes:
    r"""Return the modes of a task: its scalars along the shared eigenvectors of $\Lambda$ and $\Omega$.

    Eigenvectors are those of $\Lambda$ and, within each of its eigenspaces, of $\Omega$.
    Raises `InvalidInput` if the covariance is singular, or the two covariances do not commute.

    **Arguments:**

    - `task`: the regression, of one output, whose two covariances have common eigenvectors.

    **Returns:** the `Modes`: eigenvectors, eigenvalues and moments of each mode, in falling order of gain.

    **Example:** the second axis has the smaller variance, but its task vectors are larger, so it comes first.

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10, task_covariance=np.diag([1.0, 2.0]))
    >>> modes = sw.theory.linear.modes(task)
    >>> modes.variances.round(3).tolist(), modes.task_variances.round(3).tolist(), modes.cross.round(3).tolist()
    ([0.4, 0.6], [2.0, 1.0], [0.8, 0.6])
    """
    task = require_gaussian(task)
    basis = principal(task)
    require_regular(basis)
    lam, vectors, exact = spectrum_of(task.covariance)
    lam, vectors = lam[order := np.argsort(lam)], vectors[:, order]
    tasks = spectrum_of(task.task_covariance)
    shared = rotated(tasks, vectors)
    if _off_diagonal(shared) > 64 * lam.size * _EPS * np.abs(shared).max():
        # Within an eigenspace of the inputs any basis will do, so take that of the tasks.
        tolerance = lam.size * np.sqrt(_EPS) * lam + (0.0 if exact else lam.size * _EPS * lam[-1])
        for block in np.split(np.arange(lam.size), np.flatnonzero(np.diff(lam) > tolerance[1:]) + 1):
            rotation = np.linalg.eigh(shared[np.ix_(block, block)])[1]
            vectors[:, block], lam[block] = vectors[:, block] @ rotation, rotation.T**2 @ lam[block]
        shared = rotated(tasks, vectors)
    off_diagonal = _off_diagonal(shared)
    if off_diagonal > lam.size * np.sqrt(_EPS) * np.abs(shared).max():
        raise InvalidInput(
            "covariance and task_covariance have no common eigenvectors "
            f"(off-diagonal {off_diagonal:.2g}), which scalar equations need; use levels, which need none"
        )
    omega = np.clip(np.diagonal(shared), 0.0, None)
    order = np.argsort(-lam * omega, kind="stable")
    lam, omega = lam[order], omega[order]
    cross = lam * omega
    surplus = mean_inverse_length(task) * (cross + cross.sum() + task.noise_variance)
    remains = cross * (surplus / (cross + surplus))
    return Modes(vectors[:, order], lam, omega, cross, lam * (cross + surplus), remains)


def _off_diagonal(matrix: Matrix) -> float:
    """The largest entry off the diagonal."""
    return float(np.abs(matrix - np.diag(np.diagonal(matrix))).max())
