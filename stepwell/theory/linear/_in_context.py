"""What a map does in context: principal component regression of m components."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task import RegressionTask, require_regression
from ._fixed_points import prediction_distance, shares
from ._levels import component_gains, fixed_point
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

    m = D is least squares in context, shrunk for a finite N: the `minimizer`, where merged attention ends.

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
    m = checks.whole("number of components", m, least=0)
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


def regression_difference(task: RegressionTask, m: int) -> float:
    r"""The mean squared difference between the answers at $\mathcal M_m$ and those of regression within the context.

    That regression is least squares on the first m principal components of the inputs, in each context by itself. Both
    use the same $\beta$; attention multiplies it by the map $A_m = \sum_{d\le m} a_d\, e_d e_d^\top$, the regression
    by the inverse of the context's own covariance, $\hat\Lambda_m^{-1}$. With $s^2 = \sum_{d>m}\lambda_d + \sigma^2$
    for what is noise to the regression, and $\lambda_{\le m} = \sum_{d\le m}\lambda_d$,

    $\mathbb E(\hat y - \hat y_m)^2 = \sum_{d\le m}\lambda_d\Big[a_d^2\lambda_d^2 - 2a_d\lambda_d + 1
    + \frac{a_d^2\lambda_d(\lambda_d + \lambda_{\le m})}{N}\Big]
    + \frac{s^2}{N}\Big[\sum_{d\le m}(a_d^2\lambda_d^2 - 2a_d\lambda_d) + \frac{mN}{N-m-1}\Big],$

    by Isserlis' theorem and the mean of an inverse Wishart matrix. For long contexts it is
    $(m+1)\,\lambda_{\le m}/N$. Without noise, m = D is least squares, which is exact: the difference is the loss.

    **Arguments:**

    - `task`: the regression, of one output and one context length $N > m + 1$, with $\Omega = I$.
    - `m`: how many components, from 0 to D, in falling order of eigenvalue.

    **Returns:** the mean squared difference, in the units of the loss.

    **Example:** a tenth of the difference in contexts ten times as long, nearly.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> for length in (100, 1000):
    ...     task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), length)
    ...     print(f"{sw.theory.linear.regression_difference(task, 1):.5f}")
    0.01187
    0.00120
    """
    require_regression(task)
    dim = task.covariance.shape[0]
    m = checks.whole("number of components", m, least=0)
    if m > dim:
        raise InvalidInput(f"{m} components are asked for; there are {dim}, so give m from 0 to {dim}")
    lengths = task.context.counts
    if len(lengths) != 1 or lengths[0] <= m + 1 or not np.array_equal(task.task_covariance, np.eye(dim)):
        raise InvalidInput(
            f"the context lengths are {lengths}, for {m} components; the difference is known for one length above "
            f"{m + 1} and task vectors with unit covariance"
        )
    length, lam = lengths[0], np.linalg.eigvalsh(task.covariance)[::-1]
    kept = lam[:m]
    noise = float(lam[m:].sum()) + task.noise_variance
    # a_d λ_d, the part of a component that attention keeps; a gain is λ_d times that.
    held = component_gains(task)[:m] / kept
    own = kept * (held**2 - 2 * held + 1 + held**2 * (1 + kept.sum() / kept) / length)
    return float(own.sum() + noise / length * (np.sum(held**2 - 2 * held) + m * length / (length - m - 1)))


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
