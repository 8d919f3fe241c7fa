r"""The principal directions of a task, in which its moments are sums of squares.

They are $w_d$ on the side of the keys and $z_d$ on that of the queries, with

$C = \sum_d t_d\, w_d w_d^\top$, $\quad M\Lambda = \sum_d s_d\, w_d z_d^\top$, $\quad\Lambda = \sum_d z_d z_d^\top$.

So the loss of a map A is, with $Y = W^\top A Z$ and $\gamma_d = s_d^2/t_d$,

$L(A) = L_* + \sum_d t_d (Y_{dd} - s_d/t_d)^2 + \sum_{d\ne e} t_d Y_{de}^2$,
$\quad L_* = \mathbb E\, y_q^2 - \sum_d \gamma_d$,

which is least for $A = \sum_d u_d u_d'^\top/t_d$, where $w_d^\top u_e = z_d^\top u_e' = \sqrt{s_d}\,\delta_{de}$.

For Gaussian inputs both sides are the same: with
$\Lambda^{1/2}\Omega^{1/2} = \sum_d \sqrt{s_d}\, p_d q_d^\top$ and $\nu$ the `mean_inverse_length`,
$w_d = z_d = \Lambda^{1/2}p_d$, $u_d = u_d' = \Omega^{1/2}q_d$ and
$t_d = s_d + \nu(s_d + \mathrm{tr}(\Omega\Lambda) + \sigma^2)$. Then $L_* = \sum_d (s_d - \gamma_d)$ is a sum of
positive terms too. In the paper's case $s_d = \lambda_d$ and $w_d = \sqrt{\lambda_d}\, e_d$. Where $\Lambda$ and
$\Omega$ have common eigenvectors, all of it has the relative accuracy of the eigenvalues, whatever their ratio.

For a task that is known by its moments alone, with $C^{-1/2}M\Lambda^{1/2} = \sum_d s_d\, p_d q_d^\top$,
$w_d = C^{1/2}p_d$, $z_d = \Lambda^{1/2}q_d$ and $t_d = 1$.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from stepwell._util.errors import InvalidInput
from stepwell._util.spectrum import Spectrum, spectrum_of, symmetric_part

from .._task_protocols import LinearTask, RegressionTask, own_moments
from .._types import Matrix, PerComponent
from ._context_moments import mean_inverse_length

_EPS = float(np.finfo(float).eps)
_LARGEST = 1e100
"""Eigenvalues beyond this, or below one over it, have products that float64 cannot hold."""


@dataclass(frozen=True)
class Principal:
    r"""Sizes in falling order, and directions in the same order, one a column.

    - `sizes`: $s_d$.
    - `curvatures`: $t_d$.
    - `floor`: $L_*$, the loss when all components are learned.
    - `keys`: $w_d$; `queries`: $z_d$.
    - `key_factors`: $u_d$; `query_factors`: $u_d'$.
    - `regular`: whether $\Lambda$ and C can be inverted to working precision.
    - `useful`: how many components have a size that is not rounding.
    """

    sizes: PerComponent
    curvatures: PerComponent
    floor: float
    keys: Float[np.ndarray, "dim component"]
    queries: Float[np.ndarray, "dim component"]
    key_factors: Float[np.ndarray, "dim component"]
    query_factors: Float[np.ndarray, "dim component"]
    regular: bool
    useful: int

    @property
    def gains(self) -> PerComponent:
        r"""$\gamma_d$, the fall of the loss when component d is learned."""
        return self.sizes * (self.sizes / self.curvatures)

    @property
    def maps(self) -> Float[np.ndarray, "component dim dim"]:
        r"""$A_d = u_d u_d'^\top/t_d$, the map of each component."""
        return np.einsum("id,jd,d->dij", self.key_factors, self.query_factors, 1 / self.curvatures)

    def coefficients(self, effective_map: Matrix) -> Float[np.ndarray, "component component"]:
        r"""$Y = W^\top A Z$ of a map."""
        return self.keys.T @ effective_map @ self.queries


def principal(task: LinearTask) -> Principal:
    """The principal directions of a task; `InvalidInput` if its numbers are beyond what float64 can hold."""
    moments = own_moments(task)
    return _of_regression(cast(RegressionTask, task)) if moments is None else _of_moments(moments)


def _of_regression(task: RegressionTask) -> Principal:
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
    surplus = nu * (sizes + sizes.sum() + task.noise_variance)
    curvatures = sizes + surplus
    return Principal(
        sizes=sizes,
        curvatures=curvatures,
        floor=float(np.sum(sizes * (surplus / curvatures))),
        keys=left[:, order],
        queries=left[:, order],
        key_factors=right[:, order],
        query_factors=right[:, order],
        regular=bool(lam.min() > (0.0 if inputs.exact else lam.size * _EPS * lam.max())),
        useful=int(np.sum(sizes > rounding)),
    )


def _of_moments(moments: Any) -> Principal:
    """From `input`, `cross`, `second` and `label_power`, as `LinearTask` has them."""
    lam, cross, second = (np.asarray(part, float) for part in (moments.input, moments.cross, moments.second))
    for name, matrix in (("input", lam), ("cross", cross), ("second", second)):
        _require_numbers(f"{name} of moments()", np.abs(matrix).ravel(), "entry")
    c_root, c_inverse, f = _roots(second)
    lam_root, lam_inverse, e = _roots(lam)
    p, sizes, q = np.linalg.svd(c_inverse[:, None] * (f.T @ cross @ e) * lam_root)
    q, power, dim = q.T, float(moments.label_power), sizes.size
    return Principal(
        sizes=sizes,
        curvatures=np.ones(dim),
        floor=power - float(np.sum(sizes**2)),
        keys=f @ (c_root[:, None] * p),
        queries=e @ (lam_root[:, None] * q),
        key_factors=f @ (c_inverse[:, None] * p) * np.sqrt(sizes),
        query_factors=e @ (lam_inverse[:, None] * q) * np.sqrt(sizes),
        regular=bool(c_inverse.all() and lam_inverse.all()),
        useful=int(np.sum(sizes**2 > dim * _EPS * power)),
    )


def _roots(matrix: Matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Roots of the eigenvalues, one over them or 0 if they are 0 to working precision, and the eigenvectors."""
    values, vectors, exact = spectrum_of(symmetric_part(matrix))
    some = values > (0.0 if exact else values.size * _EPS * values.max())
    roots = np.sqrt(np.where(some, values, 0.0))
    return roots, np.divide(1.0, roots, out=np.zeros_like(roots), where=some), vectors


def require_regular(basis: Principal) -> None:
    """Raise `InvalidInput` if the inputs do not vary in every direction."""
    if not basis.regular:
        raise InvalidInput(
            "the covariance is singular to working precision; leave out the directions in which the inputs do not vary"
        )


def rotated(spectrum: Spectrum, basis: Matrix) -> Matrix:
    """The matrix of a spectrum in another orthonormal basis, whose vectors are columns."""
    rotation = basis.T @ spectrum.vectors
    return (rotation * spectrum.values) @ rotation.T


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


def _require_numbers(name: str, values: Float[np.ndarray, " dim"], what: str = "eigenvalue") -> None:
    above = values[values > 0]
    if not np.all(np.isfinite(values)) or (above.size and above.max() > _LARGEST):
        raise InvalidInput(
            f"{name} has the {what} {values.max():.3g}, and products of several are beyond float64; measure in "
            f"other units, so that it is at most {_LARGEST:.0e}"
        )
