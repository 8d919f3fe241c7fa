"""The loss of a map, the components that heads learn one at a time, and the levels of the loss."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import LinearTask
from .._types import Matrix, PerComponent
from ._context_moments import moments
from ._principal import Principal, principal, require_regular


@dataclass(frozen=True)
class Components:
    r"""Components in falling order of gain, one a column.

    - `gains`: $\gamma_d$, by how much the loss falls when component d is learned.
    - `keys`: $a_d$, with $a_d^\top C a_{d'} = \delta_{dd'}$.
    - `maps`: $A_d = a_d a_d^\top M$, of rank one; a set S of learned components is the map $\sum_{d \in S} A_d$.
    """

    gains: PerComponent
    keys: Float[np.ndarray, "dim component"]
    maps: Float[np.ndarray, "component dim dim"]


@checked
def components(task: LinearTask) -> Components:
    r"""Return the components that heads of rank one learn one at a time.

    They solve $M\Lambda M^\top a_d = \gamma_d\, C a_d$.

    With $B = C^{1/2} A \Lambda^{1/2}$ and $T = C^{-1/2} M \Lambda^{1/2}$ the loss is
    $L = \mathrm{tr}(\Omega\Lambda) - \|T\|_F^2 + \|B - T\|_F^2$, so (Eckart-Young) the best map of rank r keeps the r
    largest singular values of T, and $L_r = \mathrm{tr}(\Omega\Lambda) - \sum_{d \le r} \gamma_d$ with $\gamma_d$ the
    squared singular value d. If $p_d$ is the left singular vector, $a_d = C^{-1/2} p_d$ and the component's map is
    $C^{-1/2} p_d p_d^\top T \Lambda^{-1/2} = a_d a_d^\top M$.

    Every stationary map of a sum of rank-one heads is $\sum_{d\in S} A_d$ for a subset S, whether or not $\Lambda$ and
    $\Omega$ commute: a head with $v \ne 0$ needs $Gq = 0$, $G^\top k = 0$ with $G = C^{1/2}(T - B)\Lambda^{1/2}$.
    In the paper's case $a_d = e_d/\sqrt{c_d}$, $A_d = (\lambda_d/c_d)\, e_d e_d^\top$,
    $\gamma_d = \lambda_d/(1 + (1 + \mathrm{tr}\Lambda/\lambda_d)/N)$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`, of regular covariance.

    **Returns:** the `Components`: their gains, keys and maps, in falling order of gain.

    **Example:** without common eigenvectors, components are not along the axes.

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31, task_covariance=[[1.0, 0.5], [0.5, 1.0]])
    >>> basis = sw.theory.linear.components(task)
    >>> basis.gains.round(3).tolist(), basis.maps[0].round(3).tolist()
    ([0.712, 0.201], [[1.069, 0.879], [0.879, 0.724]])
    """
    basis = regular_principal(task)
    some = basis.sizes > 0
    keys = np.empty_like(basis.keys)
    keys[:, some] = basis.key_factors[:, some] / np.sqrt(basis.sizes[some])
    if not some.all():
        keys[:, ~some] = np.linalg.solve(basis.keys.T, np.eye(basis.sizes.size)[:, ~some])
    return Components(gains=basis.gains, keys=keys / np.sqrt(basis.curvatures), maps=basis.maps)


@checked
def loss_at(task: LinearTask, effective_map: Matrix) -> float:
    r"""Return the population loss $L(A)$ of an effective map A.

    $L(A) = \mathrm{tr}(\Omega\Lambda) - 2\,\mathrm{tr}(A^\top M \Lambda) + \mathrm{tr}(A^\top C A \Lambda)$, with M
    and C of `moments`.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `effective_map`: A of shape (dim, dim), with attention divided by N: $\sum_i v_i U_i$ for merged attention
      (`merged_map`), $\sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate (`separate_map`).

    **Returns:** the mean squared error $\mathbb E(y_q - \beta^\top A x_q)^2$, without a factor ½.

    **Example:** a model that has learned half of the best map.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> best = sw.theory.linear.minimizer(task)
    >>> [round(sw.theory.linear.loss_at(task, part * best), 3) for part in (0.0, 0.5, 1.0)]
    [1.0, 0.352, 0.136]
    """
    basis = principal(task)
    excess = basis.coefficients(effective_map) - np.diag(basis.sizes / basis.curvatures)
    return float(basis.floor + np.sum(basis.curvatures[:, None] * excess**2))


@checked
def minimizer(task: LinearTask) -> Matrix:
    r"""Return the map of least loss, $A^* = C^{-1} M$.

    In the paper's case it is $(\Lambda + (\Lambda + \mathrm{tr}(\Lambda) I)/N)^{-1}$: least squares in context, shrunk
    for a finite context. Merged attention ends there. Where $\Lambda$ is singular it is the one of least norm.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** $A^*$, of shape (dim, dim); it approaches $\Lambda^{-1}$ as the context grows.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 10)
    >>> sw.theory.linear.minimizer(task).diagonal().round(3).tolist()
    [1.316, 1.852]
    """
    basis = principal(task)
    if basis.regular:
        return (basis.key_factors / basis.curvatures) @ basis.query_factors.T
    known = moments(task)
    return np.linalg.lstsq(known.second, known.cross)[0]


@checked
def minimal_loss(task: LinearTask) -> float:
    r"""Return the loss of the `minimizer`, $L(A^*) = \mathrm{tr}(\Omega\Lambda) - \mathrm{tr}(A^{*\top} M \Lambda)$.

    For Gaussian inputs it is computed without that difference, which for a long context has no digits left.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the least mean squared error of linear attention of any number of heads; the last of the `levels`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.minimal_loss(task):.4f}")
    0.1360
    """
    return principal(task).floor


@checked
def levels(task: LinearTask) -> Float[np.ndarray, " level"]:
    r"""Return the losses of the long plateaus, $L_0, \dots, L_D$, with 0 to D components learned.

    $L_r$ is the least loss of any map of rank r. Components come in falling order of gain, because any other subset of
    the same size is a *strict* saddle: heads in use turn towards a component of larger gain in a time of order
    $\ln(1/w_{init})$, whereas a fresh head needs one of order $1/w_{init}$. In the paper's case this is the order of
    falling $\lambda_d$. Where the driving $\Lambda\Omega\Lambda$ is strongest for a component that has not the largest
    gain, that one may show first as a short-lived step, at the loss of that `fixed_point`.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** D + 1 mean squared errors, from the loss of a model that predicts zero to the `minimal_loss`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.levels(task).round(3).tolist()
    [1.0, 0.641, 0.377, 0.21, 0.136]
    """
    basis = regular_principal(task)
    # Upwards from the last, which may be far below the first, so that it keeps its digits.
    losses = basis.floor + np.concatenate([np.cumsum(basis.gains[::-1])[::-1], [0.0]])
    losses[0] = moments(task).label_power
    return losses


@dataclass(frozen=True)
class FixedPoint:
    """Components S (`learned`, from 0 in falling order of gain), the map they make and the loss there."""

    learned: tuple[int, ...]
    effective_map: Matrix
    loss: float


@checked
def fixed_point(task: LinearTask, learned: Collection[int]) -> FixedPoint:
    r"""Return the fixed point where the components S are learned: one of $2^D$.

    Its map is $\sum_{d\in S} A_d$ (paper: $\sum_{d\in S} (\lambda_d/c_d)\, e_d e_d^\top$), its loss
    $L(S) = \mathrm{tr}(\Omega\Lambda) - \sum_{d\in S}\gamma_d$ (`components`).

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `learned`: S, the components that are learned, counted from 0 in falling order of gain. Repetitions do not count.

    **Returns:** the `FixedPoint`: `learned` in order, its `effective_map` and its `loss`, a mean squared error.

    **Example:** the loss after the first component, and if the third were learned with it.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> [round(sw.theory.linear.fixed_point(task, learned).loss, 3) for learned in ([0], [0, 2])]
    [0.641, 0.473]
    """
    basis = regular_principal(task)
    return point_of(basis, component_indices(learned, basis.sizes.size), basis.maps)


@checked
def escape_rates(task: LinearTask) -> PerComponent:
    r"""Return the rate at which a small head grows on each plateau, $\rho_m = \|M\Lambda - C A_m \Lambda\|_2$.

    A small aligned head on plateau m grows as $\tau\dot v = \rho_m v^2$, and leaves after about $\tau/(\rho_m v_0)$.
    In the paper's case $\rho_m = \lambda_{m+1}^2$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** $\rho_m$ for the plateaus with m = 0 to D - 1 components learned, per unit of $t/\tau$ and of weight.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.escape_rates(task).round(3).tolist()
    [0.16, 0.09, 0.04, 0.01]
    """
    basis = regular_principal(task)
    keys, queries, sizes = basis.keys, basis.queries, basis.sizes
    if _columns_are_orthogonal(keys) and _columns_are_orthogonal(queries):
        alone = sizes * np.linalg.norm(keys, axis=0) * np.linalg.norm(queries, axis=0)
        return np.maximum.accumulate(alone[::-1])[::-1]
    return np.array([np.linalg.norm(keys[:, m:] * sizes[m:] @ queries[:, m:].T, 2) for m in range(sizes.size)])


def _columns_are_orthogonal(matrix: Float[np.ndarray, "dim component"]) -> bool:
    """Whether they are to rounding, as where the two covariances commute."""
    products = matrix.T @ matrix
    lengths = np.sqrt(np.diagonal(products))
    apart = np.abs(products - np.diag(np.diagonal(products)))
    return bool(np.all(apart <= 8 * len(matrix) * np.finfo(float).eps * np.outer(lengths, lengths)))


def point_of(basis: Principal, learned: tuple[int, ...], maps: Float[np.ndarray, "component dim dim"]) -> FixedPoint:
    """The fixed point of these components, whose maps are given. Its loss is the least, and the gains of the others."""
    loss = float(basis.floor + np.delete(basis.gains, list(learned)).sum())
    return FixedPoint(learned, maps[list(learned)].sum(axis=0), loss)


def regular_principal(task: LinearTask) -> Principal:
    """The principal directions, if the inputs vary in all."""
    basis = principal(task)
    require_regular(basis)
    return basis


def component_indices(learned: Collection[int], size: int) -> tuple[int, ...]:
    """The components asked for, in order and once each, if all are among 0 to size - 1."""
    chosen = tuple(sorted(set(learned)))
    if any(not 0 <= d < size for d in chosen):
        raise InvalidInput(f"components {list(chosen)} are asked for; they count from 0 to {size - 1}")
    return chosen
