"""Levels of the loss: at every fixed point, and on the path from small initial weights."""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task import LinearTask
from ._components import components
from ._moments import label_power
from ._principal import Principal, principal, require_regular


@checked
def component_gains(task: LinearTask) -> Float[np.ndarray, " component"]:
    r"""The fall of the loss that each component brings, $\gamma_1 \ge \dots \ge \gamma_D$ (see `components`).

    In the paper's case $\gamma_d = \lambda_d / (1 + (1 + \mathrm{tr}\Lambda/\lambda_d)/N)$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the gains in falling order, one for each of the D components.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.component_gains(task).round(3).tolist()
    [0.359, 0.263, 0.168, 0.074]
    """
    return components(task).gains


@checked
def level(task: LinearTask, learned: Collection[int]) -> float:
    r"""The loss where the components S are learned, $L(S) = \mathrm{tr}(\Omega\Lambda) - \sum_{d\in S}\gamma_d$.

    There are 2^D subsets.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `learned`: S, the components that are learned, counted from 0 in falling order of gain. Repetitions do not count.

    **Returns:** the mean squared error of the fixed point S.

    **Example:** the loss after the first component, and if the third were learned with it.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> print(f"{sw.theory.linear.level(task, [0]):.3f}, {sw.theory.linear.level(task, [0, 2]):.3f}")
    0.641, 0.473
    """
    basis = _regular(task)
    return fixed_point_loss(basis, component_indices(learned, basis.sizes.size))


@checked
def levels(task: LinearTask) -> Float[np.ndarray, " level"]:
    r"""The losses of the long plateaus, $L_0, \dots, L_D$, with 0 to D components learned.

    $L_r$ is the least loss of any map of rank r. Components come in falling order of gain, because any other subset of
    the same size is a *strict* saddle: heads in use turn towards a component of larger gain in a time of order
    $\ln(1/w_{init})$, whereas a fresh head needs one of order $1/w_{init}$. In the paper's case this is the order of
    falling $\lambda_d$. Where the driving $\Lambda\Omega\Lambda$ is strongest for a component that has not the largest
    gain, that one may show first as a short-lived step, at `level(task, subset)`.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** D + 1 mean squared errors, from the loss of a model that answers zero to the `minimal_loss`.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.levels(task).round(3).tolist()
    [1.0, 0.641, 0.377, 0.21, 0.136]
    """
    basis = _regular(task)
    # Upwards from the last, which may be far below the first, so that it keeps its digits.
    losses = basis.floor + np.concatenate([np.cumsum(basis.gains[::-1])[::-1], [0.0]])
    losses[0] = label_power(task)
    return losses


@checked
def fixed_point(task: LinearTask, learned: Collection[int]) -> Float[np.ndarray, "dim dim"]:
    r"""The effective map where the components S are learned, $\sum_{d\in S} A_d$.

    In the paper's case it is $\sum_{d\in S} (\lambda_d/c_d)\, e_d e_d^\top$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `learned`: S, the components that are learned, counted from 0 in falling order of gain.

    **Returns:** the map A with $\hat y = \beta^\top A x_q$, of shape (dim, dim).

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10)
    >>> sw.theory.linear.fixed_point(task, [0]).diagonal().round(3).tolist()
    [1.316, 0.0]
    """
    basis = components(task)
    return basis.maps[component_indices(learned, basis.gains.size)].sum(axis=0)


@checked
def escape_rates(task: LinearTask) -> Float[np.ndarray, " component"]:
    r"""The rate at which a small head grows on each plateau, $\rho_m = \|G_m\|_2$, $G_m = M\Lambda - C A_m \Lambda$.

    A small aligned head on plateau m grows as $\tau\dot v = \rho_m v^2$, and leaves after about $\tau/(\rho_m v_0)$.
    In the paper's case $\rho_m = \lambda_{m+1}^2$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** $\rho_m$ for the plateaus with m = 0 to D - 1 components learned, per unit of $t/\tau$ and of weight.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> sw.theory.linear.escape_rates(task).round(3).tolist()
    [0.16, 0.09, 0.04, 0.01]
    """
    basis = _regular(task)
    driven = [(basis.keys[:, m:] * basis.sizes[m:]) @ basis.queries[:, m:].T for m in range(basis.sizes.size)]
    return np.linalg.norm(np.stack(driven), ord=2, axis=(1, 2))


def fixed_point_loss(basis: Principal, learned: Sequence[int]) -> float:
    """The loss where these components are learned: the least, and the gains of the others."""
    return float(basis.floor + np.delete(basis.gains, list(learned)).sum())


def _regular(task: LinearTask) -> Principal:
    basis = principal(task)
    require_regular(basis)
    return basis


def component_indices(learned: Collection[int], size: int) -> list[int]:
    """The components asked for, in order and once each, if all are among 0 to size - 1."""
    chosen = sorted(set(learned))
    if any(not 0 <= d < size for d in chosen):
        raise InvalidInput(f"components {chosen} are asked for; they count from 0 to {size - 1}")
    return chosen
