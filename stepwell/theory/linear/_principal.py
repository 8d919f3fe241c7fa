r"""The principal directions of a task, in which its moments are sums of squares.

With $\Lambda^{1/2}\Omega^{1/2} = \sum_d \sqrt{s_d}\, p_d q_d^\top$, $w_d = \Lambda^{1/2}p_d$, $u_d = \Omega^{1/2}q_d$,
$\nu$ the `mean_inverse_length` and $t_d = s_d + \nu(s_d + \mathrm{tr}(\Omega\Lambda) + \sigma^2)$,

$\Lambda = \sum_d w_d w_d^\top$, $\quad M\Lambda = \Lambda\Omega\Lambda = \sum_d s_d\, w_d w_d^\top$,
$\quad C = \sum_d t_d\, w_d w_d^\top$.

So the loss of a map A is, with $Y = W^\top A W$ and $\gamma_d = s_d^2/t_d$,

$L(A) = \sum_d (s_d - \gamma_d) + \sum_d t_d (Y_{dd} - s_d/t_d)^2 + \sum_{d\ne e} t_d Y_{de}^2$,

a sum of positive terms, which is least for $A = \sum_d u_d u_d^\top/t_d$. In the paper's case $s_d = \lambda_d$ and
$w_d = \sqrt{\lambda_d}\, e_d$. Where $\Lambda$ and $\Omega$ have common eigenvectors, all of it has the relative
accuracy of the eigenvalues, whatever their ratio.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._errors import InvalidInput
from stepwell._spectrum import Spectrum, spectrum_of

from .._task import RegressionTask, require_regression
from ._moments import mean_inverse_length

_EPS = float(np.finfo(float).eps)
_LARGEST = 1e100
"""Eigenvalues beyond this, or below one over it, have products that float64 cannot hold."""


@dataclass(frozen=True)
class Principal:
    r"""Sizes in falling order, and directions in the same order, one a column.

    - `sizes`: $s_d$.
    - `surplus`: $t_d - s_d$.
    - `inputs`: $w_d$; `tasks`: $u_d$.
    - `regular`: whether $\Lambda$ can be inverted to working precision.
    - `useful`: how many components have a size that is not rounding.
    """

    sizes: Float[np.ndarray, " component"]
    surplus: Float[np.ndarray, " component"]
    inputs: Float[np.ndarray, "dim component"]
    tasks: Float[np.ndarray, "dim component"]
    regular: bool
    useful: int

    @property
    def curvatures(self) -> Float[np.ndarray, " component"]:
        r"""$t_d$."""
        return self.sizes + self.surplus

    @property
    def gains(self) -> Float[np.ndarray, " component"]:
        r"""$\gamma_d$, the fall of the loss when component d is learned."""
        return self.sizes * (self.sizes / self.curvatures)

    @property
    def remains(self) -> Float[np.ndarray, " component"]:
        r"""$s_d - \gamma_d$, what component d leaves in the loss when it is learned."""
        return self.sizes * (self.surplus / self.curvatures)

    @property
    def maps(self) -> Float[np.ndarray, "component dim dim"]:
        r"""$A_d = u_d u_d^\top/t_d$, the map of each component."""
        return np.einsum("id,jd,d->dij", self.tasks, self.tasks, 1 / self.curvatures)

    def coefficients(self, effective_map: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "component component"]:
        r"""$Y = W^\top A W$ of a map."""
        return self.inputs.T @ effective_map @ self.inputs

    def turned(self, group: slice, rotation: Float[np.ndarray, "size size"]) -> "Principal":
        """The same with other directions for a group of components of one size, of which any will do."""
        inputs, tasks = self.inputs.copy(), self.tasks.copy()
        inputs[:, group] @= rotation
        tasks[:, group] @= rotation
        return dataclasses.replace(self, inputs=inputs, tasks=tasks)


def principal(task: RegressionTask) -> Principal:
    """The principal directions of a task; `InvalidInput` if its numbers are beyond what float64 can hold."""
    require_regression(task)
    inputs, tasks = spectrum_of(task.covariance), spectrum_of(task.task_covariance)
    _require_numbers("covariance", inputs.values)
    _require_numbers("task_covariance", tasks.values)
    _require_numbers("noise_variance", np.array([task.noise_variance]))
    lam, omega = (np.clip(part.values, 0.0, None) for part in (inputs, tasks))
    left, sizes, right = _decomposition(inputs._replace(values=lam), tasks._replace(values=omega))
    order = np.argsort(-sizes, kind="stable")
    sizes = sizes[order]
    exact = inputs.exact and tasks.exact
    nu = mean_inverse_length(task)
    rounding = 0.0 if exact else sizes.size * _EPS * sizes[0]
    return Principal(
        sizes=sizes,
        surplus=nu * (sizes + sizes.sum() + task.noise_variance),
        inputs=left[:, order],
        tasks=right[:, order],
        regular=bool(lam.min() > (0.0 if inputs.exact else lam.size * _EPS * lam.max())),
        useful=int(np.sum(sizes > rounding)),
    )


def require_regular(basis: Principal) -> None:
    """Raise `InvalidInput` if the inputs do not vary in every direction."""
    if not basis.regular:
        raise InvalidInput(
            "the covariance is singular to working precision; leave out the directions in which the inputs do not vary"
        )


def rotated(spectrum: Spectrum, basis: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The matrix of a spectrum in another orthonormal basis, whose vectors are columns."""
    turned = basis.T @ spectrum.vectors
    return (turned * spectrum.values) @ turned.T


def _decomposition(inputs: Spectrum, tasks: Spectrum) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""$w_d$, $s_d$ and $u_d$, in any order."""
    lam, e, _ = inputs
    omega, f, _ = tasks
    shared = rotated(tasks, e)
    diagonal = np.diagonal(shared)
    apart = np.abs(shared - np.diag(diagonal))
    if np.all(apart <= 64 * lam.size * _EPS * np.sqrt(np.outer(diagonal, diagonal))):
        return e * np.sqrt(lam), lam * diagonal, e * np.sqrt(diagonal)
    # A singular value is off by rounding of the largest, so its square by far less: 1e-10 where sizes differ by 1e12.
    p, values, q = np.linalg.svd(np.sqrt(lam)[:, None] * (e.T @ f) * np.sqrt(omega))
    values[values <= lam.size * _EPS * values[0]] = 0.0
    return e @ (np.sqrt(lam)[:, None] * p), values**2, f @ (np.sqrt(omega)[:, None] * q.T)


def _require_numbers(name: str, values: Float[np.ndarray, " dim"]) -> None:
    above = values[values > 0]
    if not np.all(np.isfinite(values)) or (above.size and above.max() > _LARGEST):
        raise InvalidInput(
            f"{name} has the eigenvalue {values.max():.3g}, and products of several are beyond float64; measure in "
            f"other units, so that it is at most {_LARGEST:.0e}"
        )
