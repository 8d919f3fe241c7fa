"""Closed-form moments of the population, all that the loss of linear attention needs of a task."""

import equinox as eqx
import numpy as np
from jaxtyping import Float


class PopulationMoments(eqx.Module):
    r"""Second moments of $\beta = s_N \sum_n y_n x_n$, of the task vector and of the query.

    They are averaged over context lengths, with $s_N$ set by the attention's normalization, and are for targets
    $y_q = w^\top x_q$ with a query $x_q$ of mean zero that is independent of the context and of w. With several outputs
    these moments are those of every one of them, and the $\beta$ of two outputs are uncorrelated with each other and
    with the other's w.

    **Arguments:**

    - `input`: $\Lambda = E[x_q x_q^\top]$, (dim, dim).
    - `cross`: $M = E[\beta w^\top]$, (dim, dim).
    - `second`: $C = E[\beta \beta^\top]$, (dim, dim).
    - `label_power`: $E[y_q^2] = \mathrm{tr}(E[w w^\top]\Lambda)$, the loss of answering zero.

    **Example:**

    White inputs in two dimensions and a context of 10 pairs; the lowest loss of linear attention,
    $E[y_q^2] - \mathrm{tr}(M^\top C^{-1} M \Lambda)$:

    >>> import numpy as np
    >>> import stepwell as sw
    >>> one = np.eye(2)
    >>> moments = sw.tasks.PopulationMoments(input=one, cross=one, second=(1 + 3 / 10) * one, label_power=2.0)
    >>> explained = moments.cross.T @ np.linalg.solve(moments.second, moments.cross) @ moments.input
    >>> print(f"{moments.label_power - np.trace(explained):.4f}")
    0.4615
    """

    input: Float[np.ndarray, "dim dim"]
    cross: Float[np.ndarray, "dim dim"]
    second: Float[np.ndarray, "dim dim"]
    label_power: float
