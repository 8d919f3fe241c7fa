"""What a map does in context: principal component regression of m components."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell import _check
from stepwell._arguments import checked
from stepwell._errors import InvalidInput

from .._task import RegressionTask, require_regression
from ._fixed_points import prediction_distance, shares
from ._levels import fixed_point
from ._loss import loss_at


@checked
def principal_component_regression_map(
    task: RegressionTask, m: int, *, endless: bool = False
) -> Float[np.ndarray, "dim dim"]:
    r"""The map of in-context regression on the first m components, $\hat y = \beta^\top A_m x_q$.

    At the task's context lengths it is the fixed point $\mathcal M_m$, whose components are shrunk as noise and short
    contexts demand. In the limit $N \to\infty$, with $f_d$, $s_d$ the eigenpairs of
    $\Omega^{1/2}\Lambda\Omega^{1/2}$, $A_m = \sum_{d\le m} \Omega^{1/2} f_d f_d^\top\Omega^{1/2}/s_d$, and
    $\hat y = w^\top \Lambda A_m x_q$. In the paper's case $A_m = \sum_{d\le m} e_d e_d^\top/\lambda_d$, so that
    $\hat y = w^\top\sum_{d\le m} e_d e_d^\top x_q$.

    m = D is least squares in context, shrunk for a finite N: the `minimiser`, where merged attention ends.

    The components do not depend on N or the noise, only their sizes do: a component's map is $\gamma_d/s_d$ times its
    limit, $\gamma_d = s_d^2/((1+\nu)s_d + \nu(\mathrm{tr}(\Omega\Lambda)+\sigma^2))$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `RegressionTask` of one output.
    - `m`: how many components, from 0 to D, in falling order of gain.
    - `endless`: whether to take the limit of an infinite context; by default the task's own lengths are taken.

    **Returns:** $A_m$, of shape (dim, dim).

    **Example:** with an infinite context, the inverse of the first eigenvalue; with 10 pairs, less.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10)
    >>> maps = [sw.theory.linear.principal_component_regression_map(task, 1, endless=end) for end in (True, False)]
    >>> [each.diagonal().round(2).tolist() for each in maps]
    [[1.67, 0.0], [1.32, 0.0]]
    """
    require_regression(task)
    dim = task.covariance.shape[0]
    m = _check.whole("number of components", m, least=0)
    if m > dim:
        raise InvalidInput(f"{m} components are asked for; there are {dim}, so give m from 0 to {dim}")
    if not endless:
        return fixed_point(task, range(m))
    spread, axes = np.linalg.eigh(task.task_covariance)
    root = (axes * np.sqrt(np.clip(spread, 0.0, None))) @ axes.T
    sizes, vectors = np.linalg.eigh(root @ task.covariance @ root)
    sizes, vectors = sizes[::-1][:m], vectors[:, ::-1][:, :m]
    kept = sizes > dim * np.finfo(float).eps * np.trace(task.covariance @ task.task_covariance)
    half = root @ vectors[:, kept]
    return (half / sizes[kept]) @ half.T


@dataclass(frozen=True)
class ClosestRegression:
    """Regression on the first `m` components predicts most like the map.

    `distance` is the root mean square difference of the two predictions over fresh contexts (`prediction_distance`);
    `excess` is how much higher the map's loss is than the regression's.
    """

    m: int
    distance: float
    excess: float


@checked
def closest_pcr(task: RegressionTask, effective_map: Float[np.ndarray, "dim dim"]) -> ClosestRegression:
    r"""The m for which `principal_component_regression_map(task, m)` predicts most like a given map.

    Squared distances are $\|B\|^2 + \sum_{d\le m}(\gamma_d - 2\sqrt{\gamma_d}\,b_d)$ in the terms of
    `nearest_fixed_point`, so all m are compared at once. Where gains are equal the components are rotated to fit.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `RegressionTask` of one output.
    - `effective_map`: the map A of a model, of shape (dim, dim), with attention divided by N.

    **Returns:** the `ClosestRegression`: `m`, the `distance` of its predictions from the map's and the `excess` of the
    map's loss over its own.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> closest = sw.theory.linear.closest_pcr(task, 0.9 * sw.theory.linear.fixed_point(task, [0, 1]))
    >>> closest.m, round(closest.distance, 3), round(closest.excess, 4)
    (2, 0.079, 0.0062)
    """
    basis, held = shares(task, effective_map)
    squares = np.concatenate([[0.0], np.cumsum(basis.gains * (1 - 2 * held))])
    m = int(np.argmin(squares))
    regression = basis.maps[:m].sum(axis=0)
    return ClosestRegression(
        m,
        prediction_distance(task, effective_map, regression),
        loss_at(task, effective_map) - loss_at(task, regression),
    )
