r"""The Hessian of the loss in the weights, at any weights and at the fixed points.

All Hessians are of L itself, the mean squared error without a factor ½. Under the flow
$\tau\dot W = -\tfrac12\partial L/\partial W$ an eigenvalue h makes a small deviation grow at the rate $-h/2$.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.memory import require_arrays

from .._task_protocols import LinearTask
from .._types import Matrix
from ._context_moments import moments
from ._levels import levels, loss_at, minimizer
from ._weights import aligned_weights, merged_map, separate_map

Kind = Literal["strict saddle", "higher-order saddle", "minimum"]


@dataclass(frozen=True)
class Landscape:
    """The curvature at a point where the gradient vanishes.

    - `eigenvalues` of the Hessian of L, rising.
    - `negative`, `zero`, `positive`: how many there are of each; below `tolerance` in size counts as zero.
    - `kind`: a strict saddle has a negative eigenvalue, a higher-order one none but a way down; a minimum is global.
    """

    eigenvalues: Float[np.ndarray, " weight"]
    negative: int
    zero: int
    positive: int
    tolerance: float
    kind: Kind


@checked
def separate_hessian(
    task: LinearTask,
    values: Float[np.ndarray, " head"],
    keys: Float[np.ndarray, "head pair dim"],
    queries: Float[np.ndarray, "head pair dim"],
) -> Float[np.ndarray, "weight weight"]:
    r"""Return the Hessian $\partial^2 L$ of separate attention in its weights.

    $\mathrm d^2L = 2\,\mathrm{tr}(\mathrm dA^\top C\,\mathrm dA\,\Lambda) - 2\langle G, \mathrm d^2A\rangle$ with
    $G = M\Lambda - CA\Lambda$ and $A = \sum_{i,r} v_i k_{i,r} q_{i,r}^\top$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `values`: $v_i$, of shape (head,).
    - `keys`, `queries`: $k_{i,r}$ and $q_{i,r}$, of shape (head, pair, dim).

    **Returns:** a symmetric matrix whose rows are all $v_i$, then all $k_{i,r}$, then all $q_{i,r}$, flattened.

    **Example:** zero weights have no curvature at all, so their plateau is left slowly.

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> hessian = sw.theory.linear.separate_hessian(task, np.zeros(3), np.zeros((3, 1, 2)), np.zeros((3, 1, 2)))
    >>> hessian.shape, float(abs(hessian).max())
    ((15, 15), 0.0)
    """
    heads, rank, dim = keys.shape
    pairs = heads * rank
    slope = _slope(task, separate_map(values, keys, queries))
    each = np.repeat(values, rank)
    key, query = keys.reshape(pairs, dim), queries.reshape(pairs, dim)
    axes = np.eye(dim)
    by_value = np.einsum("hri,hrj->hij", keys, queries)
    by_key = np.einsum("p,ai,pj->paij", each, axes, query).reshape(-1, dim, dim)
    by_query = np.einsum("p,pi,aj->paij", each, key, axes).reshape(-1, dim, dim)
    hessian = _curvature(task, np.concatenate([by_value, by_key, by_query]))

    # The second derivatives of A, against G.
    second = np.zeros_like(hessian)
    of_key, of_query = np.split(np.arange(heads, len(hessian)), 2)
    onto = np.repeat(np.eye(heads), rank, axis=0)
    second[:heads, of_key] = np.einsum("ph,pi->hpi", onto, query @ slope.T).reshape(heads, -1)
    second[:heads, of_query] = np.einsum("ph,pi->hpi", onto, key @ slope).reshape(heads, -1)
    second[np.ix_(of_key, of_query)] = np.kron(np.diag(each), slope)
    return hessian - 2 * (second + second.T)


@checked
def merged_hessian(
    task: LinearTask, values: Float[np.ndarray, " head"], key_queries: Float[np.ndarray, "head dim dim"]
) -> Float[np.ndarray, "weight weight"]:
    r"""Return the Hessian $\partial^2 L$ of merged attention in its weights.

    The formula is that of `separate_hessian`, with $A = \sum_i v_i U_i$.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `values`: $v_i$, of shape (head,).
    - `key_queries`: $U_i$, of shape (head, dim, dim).

    **Returns:** a symmetric matrix whose rows are $v_i$, then $U_i$, flattened: of each head, 1 + dim².

    **Example:** at zero weights the lowest eigenvalue is $-2\|\Lambda^2\|_F$.

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> hessian = sw.theory.linear.merged_hessian(task, np.zeros(1), np.zeros((1, 2, 2)))
    >>> print(f"{np.linalg.eigvalsh(hessian)[0]:.3f}, {-2 * np.linalg.norm([0.36, 0.16]):.3f}")
    -0.788, -0.788
    """
    heads, dim, _ = key_queries.shape
    slope = _slope(task, merged_map(values, key_queries))
    entries = np.eye(dim * dim).reshape(-1, dim, dim)
    by_entry = np.einsum("h,aij->haij", values, entries).reshape(-1, dim, dim)
    second = np.zeros((heads * (1 + dim * dim),) * 2)
    second[:heads, heads:] = np.kron(np.eye(heads), slope.ravel())
    return _curvature(task, np.concatenate([key_queries, by_entry])) - 2 * (second + second.T)


class CriticalRates(NamedTuple):
    """Learning rates at which gradient descent of merged attention changes its ways, for attention divided by N.

    - `catapult`: above it the loss is thrown up from the minimum that gradient flow would reach, and settles elsewhere.
    - `cycles`: above it no minimum is stable, and the loss does not settle.
    """

    catapult: float
    cycles: float


@checked
def merged_critical_rates(task: LinearTask) -> CriticalRates:
    r"""Return the learning rates at which descent of merged attention from small weights begins to rise, and to cycle.

    At a minimum whose Hessian has the largest eigenvalue h, a step of rate above $2/h$ overshoots by more than it was
    away. The minima are $vU = A^*$ for any v, and heads act as one. Flow from small weights ends at
    $v^2 = \|U\|_F^2$; descent leaves it at rates above $2/h$ there, and comes to rest at a v for which $2/h(v)$ is
    above the rate. Above $2/\min_v h(v)$ there is none.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the two rates.

    **Example:**

    >>> rates = sw.theory.linear.merged_critical_rates(sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31))
    >>> print(f"{rates.catapult:.3f} {rates.cycles:.3f}")
    1.125 1.189
    """
    learned = minimizer(task)
    balanced = 0.5 * np.log(np.linalg.norm(learned))

    def sharpness(logarithm: float) -> float:
        value = np.exp(logarithm)
        return float(np.linalg.eigvalsh(merged_hessian(task, np.array([value]), learned[None] / value))[-1])

    # Its half is the largest eigenvalue of v² W + a aᵀ/v², W = C ⊗ Λ, a = W^½ vec A*: convex in v².
    flattest: Any = scipy.optimize.minimize_scalar(sharpness, bounds=(balanced - 5, balanced + 5), method="bounded")
    return CriticalRates(2.0 / sharpness(balanced), 2.0 / float(flattest.fun))


@checked
def fixed_point_landscape(task: LinearTask, learned: Collection[int], *, heads: int, rank: int = 1) -> Landscape:
    r"""Return the landscape of separate attention at a fixed point, with the weights of `aligned_weights`.

    With rank one and a spare head, the points on the path {1, …, m}, m < D, are higher-order saddles: a spare head at
    zero moves the loss only at third order. Every other subset is strict, since a head in use can turn towards a
    component of larger gain. With a higher rank a spare *pair* in a head of value v has the eigenvalues
    $\pm 2v\rho$ for each singular value ρ of G: the path is strict too, except where all heads in use are full.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `learned`: the components that are learned, counted from 0 in falling order of gain.
    - `heads`: how many heads the model has; with their pairs, at least as many as components are learned.
    - `rank`: pairs of key and query in a head.

    **Returns:** the `Landscape`.

    **Example:** after the first component, and after the second without the first.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.5, 0.3, 0.2]), 20)
    >>> for learned in ([0], [1]):
    ...     point = sw.theory.linear.fixed_point_landscape(task, learned, heads=3)
    ...     print(f"{point.kind}, {point.negative} negative")
    higher-order saddle, 0 negative
    strict saddle, 1 negative
    """
    weights = aligned_weights(task, learned, heads=heads, rank=rank)
    dim = moments(task).input.shape[0]
    least = float(levels(task)[min(dim, heads * rank)])
    return _landscape(task, separate_hessian(task, *weights), separate_map(*weights), least)


@checked
def merged_landscape(task: LinearTask, *, heads: int, at: Literal["zero", "minimum"] = "zero") -> Landscape:
    r"""Return the landscape of merged attention at zero weights, or at the minimum with one balanced head in use.

    Zero is a strict saddle: eigenvalues $\pm 2\|M\Lambda\|_F$ once per head ($\pm 2\|\Lambda^2\|_F$ in the paper's
    case) and zero otherwise.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `heads`: how many heads the model has.
    - `at`: `"zero"` or `"minimum"`, the two fixed points in function space.

    **Returns:** the `Landscape`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 31)
    >>> zero = sw.theory.linear.merged_landscape(task, heads=3)
    >>> print(f"{zero.kind}, {zero.negative} negative eigenvalues of {zero.eigenvalues[0]:.3f}")
    strict saddle, 3 negative eigenvalues of -0.788
    """
    heads = checks.whole("heads", heads)
    checks.one_of("at", at, ("zero", "minimum"))
    dim = moments(task).input.shape[0]
    weights = heads * (dim * dim + 1)
    require_arrays((weights, weights), what=f"the Hessian of {weights} weights", instead="take fewer heads")
    values, key_queries = np.zeros(heads), np.zeros((heads, dim, dim))
    if at == "minimum":
        best = minimizer(task)
        values[0] = np.sqrt(np.linalg.norm(best))
        key_queries[0] = best / values[0]
    hessian = merged_hessian(task, values, key_queries)
    return _landscape(task, hessian, merged_map(values, key_queries), float(levels(task)[-1]))


def _slope(task: LinearTask, effective_map: Matrix) -> Matrix:
    """G, minus half the derivative of the loss in the map."""
    known = moments(task)
    return (known.cross - known.second @ effective_map) @ known.input


def _curvature(task: LinearTask, jacobian: Float[np.ndarray, "weight dim dim"]):
    """2 tr(dAᵀ C dA Λ) for every two rows of the Jacobian of the map."""
    known = moments(task)
    weighted = known.second @ jacobian @ known.input
    size = jacobian.shape[0]
    half = jacobian.reshape(size, -1) @ weighted.reshape(size, -1).T
    return half + half.T


def _landscape(task: LinearTask, hessian: np.ndarray, effective_map: np.ndarray, least: float) -> Landscape:
    eigenvalues = np.linalg.eigvalsh(hessian)
    # Solving with C loses its condition number; the rest is the rounding of a symmetric eigenproblem.
    known = moments(task)
    loss_of_digits = 10 * eigenvalues.size * np.finfo(float).eps * float(np.linalg.cond(known.second))
    scale = max(float(np.abs(eigenvalues).max()), 2 * float(np.linalg.norm(_slope(task, 0 * effective_map))))
    tolerance = loss_of_digits * scale
    negative, positive = int(np.sum(eigenvalues < -tolerance)), int(np.sum(eigenvalues > tolerance))
    kind: Kind = "strict saddle"
    if negative == 0:
        lowest = loss_at(task, effective_map) <= least + loss_of_digits * known.label_power
        kind = "minimum" if lowest else "higher-order saddle"
    zero = eigenvalues.size - negative - positive
    return Landscape(eigenvalues, negative, zero, positive, tolerance, kind)
