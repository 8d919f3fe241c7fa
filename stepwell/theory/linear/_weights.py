"""Effective maps of weights, what the flow conserves in them, and aligned weights at a fixed point.

Blocks that mix labels and inputs are taken as zero, as they stay where they are so initially.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_arrays

from .._task_protocols import LinearTask
from ._levels import component_indices, components


@checked
def separate_map(
    values: Float[np.ndarray, "*lead head"],
    keys: Float[np.ndarray, "*lead head pair dim"],
    queries: Float[np.ndarray, "*lead head pair dim"],
) -> Float[np.ndarray, "*lead dim dim"]:
    r"""Return the effective map of separate attention, $A = \sum_{i,r} v_i k_{i,r} q_{i,r}^\top$.

    Its prediction is $\hat y = \beta^\top A x_q$.

    **Arguments:**

    - `values`: $v_i$, of shape (head,). Leading axes, such as one of time, are allowed here and below.
    - `keys`, `queries`: $k_{i,r}$ and $q_{i,r}$, of shape (head, pair, dim).

    **Returns:** A, of shape (dim, dim), with the leading axes.

    **Example:**

    >>> from stepwell.theory.linear import separate_map
    >>> separate_map(np.array([2.0]), np.array([[[1.0, 0.0]]]), np.array([[[0.5, 0.5]]])).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    return np.einsum("...h,...hri,...hrj->...ij", values, keys, queries)


@checked
def merged_map(
    values: Float[np.ndarray, "*lead head"], key_queries: Float[np.ndarray, "*lead head dim dim"]
) -> Float[np.ndarray, "*lead dim dim"]:
    r"""Return the effective map of merged attention, $A = \sum_i v_i U_i$, with $\hat y = \beta^\top A x_q$.

    **Arguments:**

    - `values`: $v_i$, of shape (head,). Leading axes, such as one of time, are allowed here and below.
    - `key_queries`: $U_i$, of shape (head, dim, dim).

    **Returns:** A, of shape (dim, dim), with the leading axes.

    **Example:**

    >>> from stepwell.theory.linear import merged_map
    >>> merged_map(np.array([2.0, 1.0]), np.stack([np.eye(2), np.diag([0.0, 1.0])])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    return np.einsum("...h,...hij->...ij", values, key_queries)


@dataclass(frozen=True)
class SeparateConserved:
    r"""What the flow of separate keys and queries conserves in each head, for any task, training set and rank.

    - `value_key`: $v_i^2 - \sum_r \|k_{i,r}\|^2$.
    - `key_query`: the matrix $K_iK_i^\top - Q_iQ_i^\top$, with rows $k_{i,r}$ and $q_{i,r}$.
    """

    value_key: Float[np.ndarray, "*lead head"]
    key_query: Float[np.ndarray, "*lead head pair pair"]


@checked
def separate_conserved(
    values: Float[np.ndarray, "*lead head"],
    keys: Float[np.ndarray, "*lead head pair dim"],
    queries: Float[np.ndarray, "*lead head pair dim"],
) -> SeparateConserved:
    r"""Return what the flow of separate attention conserves in each head.

    Gradient descent keeps these quantities to first order in its rate.

    **Arguments:**

    - `values`: $v_i$, of shape (head,). Leading axes, such as one of time, are allowed here and below.
    - `keys`, `queries`: $k_{i,r}$ and $q_{i,r}$, of shape (head, pair, dim).

    **Returns:** the `SeparateConserved`: `value_key` of shape (head,) and `key_query` of shape (head, pair, pair).

    **Example:**

    >>> from stepwell.theory.linear import separate_conserved
    >>> conserved = separate_conserved(np.array([2.0]), np.array([[[1.0, 0.0]]]), np.array([[[0.5, 0.5]]]))
    >>> conserved.value_key.tolist(), conserved.key_query.tolist()
    ([3.0], [[[0.5]]])
    """
    key_power = keys @ np.swapaxes(keys, -1, -2)
    query_power = queries @ np.swapaxes(queries, -1, -2)
    return SeparateConserved(values**2 - np.trace(key_power, axis1=-2, axis2=-1), key_power - query_power)


@checked
def merged_conserved(
    values: Float[np.ndarray, "*lead head"], key_queries: Float[np.ndarray, "*lead head dim dim"]
) -> Float[np.ndarray, "*lead head"]:
    r"""Return what the flow of merged attention conserves in each head, $v_i^2 - \|U_i\|_F^2$.

    **Arguments:**

    - `values`: $v_i$, of shape (head,). Leading axes, such as one of time, are allowed here and below.
    - `key_queries`: $U_i$, of shape (head, dim, dim).

    **Returns:** one number for each head, of shape (head,), with the leading axes.

    **Example:**

    >>> from stepwell.theory.linear import merged_conserved
    >>> merged_conserved(np.array([2.0, 1.0]), np.stack([np.eye(2), np.diag([0.0, 1.0])])).tolist()
    [2.0, 0.0]
    """
    return values**2 - np.sum(key_queries**2, axis=(-2, -1))


@checked
def aligned_weights(
    task: LinearTask, learned: Collection[int], *, heads: int, rank: int = 1
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, "head pair dim"], Float[np.ndarray, "head pair dim"]]:
    r"""Return balanced weights $v_i$, $k_{i,r}$, $q_{i,r}$ of separate attention at a fixed point.

    Spare heads and pairs are zero. Heads take `rank` components each, in turn. If a head's map has the singular value
    decomposition $\sum_r s_r k_r^0 q_r^{0\top}$, then $v = (\sum_r s_r)^{1/3}$, $k_r = \sqrt{s_r/v}\,k_r^0$ and
    likewise $q_r$, so that everything `separate_conserved` has is zero. In the paper's case, rank one:
    $k = q = v e_d$, $v = (\lambda_d/c_d)^{1/3}$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `learned`: the components that are learned, counted from 0 in falling order of gain.
    - `heads`: how many heads there are.
    - `rank`: pairs of key and query in a head. `heads * rank` must not be below the number of components.

    **Returns:** the values, of shape (head,), and the keys and the queries, of shape (head, pair, dim).

    **Example:** the loss of these weights is the level of the fixed point.

    >>> theory, task = sw.theory.linear, sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 31)
    >>> weights = theory.aligned_weights(task, [0], heads=2)
    >>> print(f"{theory.loss_at(task, theory.separate_map(*weights)):.4f}, {theory.fixed_point(task, [0]).loss:.4f}")
    0.4475, 0.4475
    """
    heads, rank = checks.whole("heads", heads), checks.whole("rank", rank)
    basis = components(task)
    dim = basis.gains.size
    chosen = list(component_indices(learned, dim))
    if len(chosen) > heads * rank:
        raise InvalidInput(
            f"{len(chosen)} components do not fit {heads} heads of rank {rank}; give at least "
            f"{-(-len(chosen) // rank)} heads"
        )
    require_arrays((heads, rank, dim), (heads, rank, dim), what=f"{heads} heads of rank {rank}", instead="take fewer")
    values, keys, queries = np.zeros(heads), np.zeros((heads, rank, dim)), np.zeros((heads, rank, dim))
    for head in range(heads):
        own = chosen[head * rank : (head + 1) * rank]
        left, sizes, right = np.linalg.svd(basis.maps[own].sum(axis=0))
        sizes = sizes[: len(own)]
        values[head] = sizes.sum() ** (1 / 3)
        if values[head] > 0:
            scale = np.sqrt(sizes / values[head])[:, None]
            keys[head, : len(own)] = scale * left.T[: len(own)]
            queries[head, : len(own)] = scale * right[: len(own)]
    return values, keys, queries
