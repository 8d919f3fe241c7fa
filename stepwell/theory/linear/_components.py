"""The components that rank-one heads learn one at a time, for any task."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import LinearTask
from ._principal import principal, require_regular


@dataclass(frozen=True)
class Components:
    r"""Components in falling order of gain, one a column.

    - `gains`: $\gamma_d$, by how much the loss falls when component d is learned.
    - `keys`: $a_d$, with $a_d^\top C a_{d'} = \delta_{dd'}$.
    - `maps`: $A_d = a_d a_d^\top M$, of rank one; a set S of learned components is the map $\sum_{d \in S} A_d$.
    """

    gains: Float[np.ndarray, " component"]
    keys: Float[np.ndarray, "dim component"]
    maps: Float[np.ndarray, "component dim dim"]


@checked
def components(task: LinearTask) -> Components:
    r"""The components that heads of rank one learn one at a time.

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

    - `task`: the regression, an `InContextRegression` or another `LinearTask`. Its covariance must
      not be singular.

    **Returns:** the `Components`: their gains, keys and maps, in falling order of gain.

    **Example:** without common eigenvectors, components are not along the axes.

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31, task_covariance=[[1.0, 0.5], [0.5, 1.0]])
    >>> basis = sw.theory.linear.components(task)
    >>> basis.gains.round(3).tolist(), basis.maps[0].round(3).tolist()
    ([0.712, 0.201], [[1.069, 0.879], [0.879, 0.724]])
    """
    basis = principal(task)
    require_regular(basis)
    some = basis.sizes > 0
    keys = np.empty_like(basis.keys)
    keys[:, some] = basis.key_factors[:, some] / np.sqrt(basis.sizes[some])
    if not some.all():
        keys[:, ~some] = np.linalg.solve(basis.keys.T, np.eye(basis.sizes.size)[:, ~some])
    return Components(gains=basis.gains, keys=keys / np.sqrt(basis.curvatures), maps=basis.maps)
