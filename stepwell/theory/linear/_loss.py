"""The loss of an effective map A, ŷ = βᵀ A x_q, and its minimum."""

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import LinearTask
from ._moments import cross_moment, second_moment
from ._principal import principal


@checked
def loss_at(task: LinearTask, effective_map: Float[np.ndarray, "dim dim"]) -> float:
    r"""The population loss of a map A.

    $L(A) = \mathrm{tr}(\Omega\Lambda) - 2\,\mathrm{tr}(A^\top M \Lambda) + \mathrm{tr}(A^\top C A \Lambda)$, with M the
    `cross_moment` and C the `second_moment`.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `effective_map`: A of shape (dim, dim), with attention divided by N: $\sum_i v_i U_i$ for merged attention
      (`merged_map`), $\sum_{i,r} v_i k_{i,r} q_{i,r}^\top$ for separate (`separate_map`).

    **Returns:** the mean squared error $\mathbb E(y_q - \beta^\top A x_q)^2$, without a factor ½.

    **Example:** a model that has learned half of the best map.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> best = sw.theory.linear.minimizer(task)
    >>> [round(sw.theory.linear.loss_at(task, part * best), 3) for part in (0.0, 0.5, 1.0)]
    [1.0, 0.352, 0.136]
    """
    basis = principal(task)
    excess = basis.coefficients(effective_map) - np.diag(basis.sizes / basis.curvatures)
    return float(basis.floor + np.sum(basis.curvatures[:, None] * excess**2))


@checked
def minimizer(task: LinearTask) -> Float[np.ndarray, "dim dim"]:
    r"""The map of least loss, $A^* = C^{-1} M$.

    In the paper's case it is $(\Lambda + (\Lambda + \mathrm{tr}(\Lambda) I)/N)^{-1}$: least squares in context, shrunk
    for a finite context. Merged attention ends there. Where $\Lambda$ is singular the loss does not depend on all of A,
    and the solution of least norm is taken.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** $A^*$, of shape (dim, dim); it approaches $\Lambda^{-1}$ as the context grows.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10)
    >>> sw.theory.linear.minimizer(task).diagonal().round(3).tolist()
    [1.316, 1.852]
    """
    basis = principal(task)
    if basis.regular:
        return (basis.key_factors / basis.curvatures) @ basis.query_factors.T
    return np.linalg.lstsq(second_moment(task), cross_moment(task))[0]


@checked
def minimal_loss(task: LinearTask) -> float:
    r"""The loss of the `minimizer`, $L(A^*) = \mathrm{tr}(\Omega\Lambda) - \mathrm{tr}(A^{*\top} M \Lambda)$.

    For Gaussian inputs it is computed without that difference, which for a long context has no digits left.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the least mean squared error of linear attention of any number of heads; the last of the `levels`.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.minimal_loss(task):.4f}")
    0.1360
    """
    return principal(task).floor
