"""The fixed points of separate attention, the one nearest to a map, and the regression that it performs in context."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._task_protocols import LinearTask, RegressionTask, require_regression
from .._types import Matrix, PerComponent
from ._levels import Components, FixedPoint, components, fixed_point, loss_at, point_of, regular_principal
from ._principal import principal


class FixedPoints:
    r"""All fixed points of a task in function space, $\sum_{d\in S} A_d$ for every subset S (see `components`).

    They come by number of components, then in lexicographic order, and are made one at a time: for D = 30 there are a
    billion. Components that bring no gain make no map and are left out. Where gains are equal the components, and so
    the fixed points, are a choice from a continuum.
    """

    def __init__(self, task: LinearTask):
        self._basis = regular_principal(task)
        self._maps, self._useful = self._basis.maps, self._basis.useful

    @property
    def count(self) -> int:
        r"""How many there are: $2^D$, if every component brings a gain."""
        return 2**self._useful

    def __iter__(self) -> Iterator[FixedPoint]:
        for size in range(self._useful + 1):
            for learned in itertools.combinations(range(self._useful), size):
                yield point_of(self._basis, learned, self._maps)

    def path(self) -> list[FixedPoint]:
        r"""Return the subsets that small initial weights visit, $\mathcal M_m = \{1, \dots, m\}$, m = 0, …, D."""
        return [point_of(self._basis, tuple(range(size)), self._maps) for size in range(self._useful + 1)]


@checked
def fixed_points(task: LinearTask) -> FixedPoints:
    """Return all fixed points of separate attention on a task, of any rank, computed as they are iterated over.

    Merged attention has the first and the last of them.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the `FixedPoints`, an iterable of `FixedPoint` with `learned`, `effective_map` and `loss`; its
    `count` is their number and its `path()` the list of those that training from small weights visits.

    **Example:**

    >>> points = sw.theory.linear.fixed_points(sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 31))
    >>> points.count
    4
    >>> [(point.learned, round(point.loss, 3)) for point in points.path()]
    [((), 1.0), ((0,), 0.448), ((0, 1), 0.088)]
    """
    return FixedPoints(task)


@checked
def prediction_distance(task: LinearTask, first: Matrix, second: Matrix) -> float:
    r"""Return the root mean square difference of the predictions of two maps, over fresh contexts and queries.

    $\|C^{1/2}(A - A')\Lambda^{1/2}\|_F = \sqrt{\mathbb E(\hat y - \hat y')^2}$ is the loss's own metric:
    $L(A) = L(A^*) + \mathrm{distance}(A, A^*)^2$. The maps of components are orthogonal in it.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `first`, `second`: the maps A and A', of shape (dim, dim).

    **Returns:** the distance, in the units of a label.

    **Example:** the distance of zero from the best map is the root of what there is to gain.

    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> distance = sw.theory.linear.prediction_distance(task, np.zeros((4, 4)), sw.theory.linear.minimizer(task))
    >>> print(f"{distance**2:.3f}, {1 - sw.theory.linear.minimal_loss(task):.3f}")
    0.864, 0.864
    """
    basis = principal(task)
    return float(np.linalg.norm(np.sqrt(basis.curvatures)[:, None] * basis.coefficients(first - second)))


@dataclass(frozen=True)
class Nearest:
    """The fixed point nearest to a map, and its `distance` as `prediction_distance` has it."""

    point: FixedPoint
    distance: float


@checked
def nearest_fixed_point(task: LinearTask, effective_map: Matrix) -> Nearest:
    r"""Return the fixed point whose map predicts most like a given one, without a search through the subsets.

    In the metric of `prediction_distance` the components are orthogonal, of length $\sqrt{\gamma_d}$. So component d
    belongs to the nearest subset if the map has more than half of it, $b_d > \tfrac12\sqrt{\gamma_d}$ (`shares`).

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `effective_map`: the map A of a model, of shape (dim, dim), with attention divided by N.

    **Returns:** the `Nearest`: its `point` is a `FixedPoint`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> learned = sw.theory.linear.fixed_point(task, [0, 1]).effective_map
    >>> nearest = sw.theory.linear.nearest_fixed_point(task, 0.9 * learned)
    >>> nearest.point.learned, round(nearest.distance, 3)
    ((0, 1), 0.079)
    """
    basis, held = shares(task, effective_map)
    learned = tuple(np.flatnonzero(held > 0.5).tolist())
    point = point_of(principal(task), learned, basis.maps)
    return Nearest(point, prediction_distance(task, effective_map, point.effective_map))


@checked
def shares(task: LinearTask, effective_map: Matrix) -> tuple[Components, PerComponent]:
    r"""Return how much of each component a map has, $b_d/\sqrt{\gamma_d} = a_d^\top C A \Lambda M^\top a_d/\gamma_d$.

    Components of equal gain, which may be any rotation of these, are rotated to fit the map, the largest number first.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `effective_map`: the map A of a model, of shape (dim, dim), with attention divided by N.

    **Returns:** the `Components` of the task, and a number for each: 1 if it is learned, 0 if it is not or has no gain.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 31)
    >>> first, second = (sw.theory.linear.fixed_point(task, [d]).effective_map for d in (0, 1))
    >>> sw.theory.linear.shares(task, 0.9 * first + 0.2 * second)[1].round(3).tolist()
    [0.9, 0.2]
    """
    basis, own = components(task), principal(task)
    held = np.zeros(basis.gains.size)
    keys, maps = basis.keys.copy(), basis.maps.copy()
    parts = own.coefficients(effective_map)
    tolerance = basis.gains.size * np.sqrt(np.finfo(float).eps)
    gains = basis.gains[: own.useful]
    breaks = np.flatnonzero(gains[1:] < (1 - tolerance) * gains[:-1]) + 1
    for block in np.split(np.arange(own.useful), breaks):
        overlap = parts[np.ix_(block, block)] * own.curvatures[block, None] / own.sizes[block]
        if block.size == 1:
            held[block] = overlap[0]
            continue
        rising, rotation = np.linalg.eigh((overlap + overlap.T) / 2)
        held[block], keys[:, block] = rising[::-1], keys[:, block] @ rotation[:, ::-1]
        left, right = (part[:, block] @ rotation[:, ::-1] for part in (own.key_factors, own.query_factors))
        maps[block] = np.einsum("id,jd,d->dij", left, right, 1 / own.curvatures[block])
    return Components(basis.gains, keys, maps), held


@checked
def total_share(task: LinearTask, effective_map: Float[np.ndarray, "*lead dim dim"]) -> Float[np.ndarray, "*lead"]:
    r"""Return how many components a map has: the sum of its `shares`, $\sum_d b_d/\sqrt{\gamma_d}$.

    It is 1 for a head that has learned one component, and also where heads share components among themselves: those of
    rank one whose maps add up to several are projections, whose trace is their rank.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `effective_map`: maps A, of shape (…, dim, dim), with attention divided by N: those of a model or of its heads.

    **Returns:** a number for each map.

    **Example:**

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> first, second = (sw.theory.linear.fixed_point(task, [d]).effective_map for d in (0, 1))
    >>> sw.theory.linear.total_share(task, np.stack([first, 0.9 * first + 0.2 * second])).round(3).tolist()
    [1.0, 1.1]
    """
    own = principal(task)
    weights = own.curvatures[: own.useful] / own.sizes[: own.useful]
    dual = (own.keys[:, : own.useful] * weights) @ own.queries[:, : own.useful].T
    return np.einsum("...ij,ij->...", effective_map, dual)


@checked
def principal_component_regression_map(task: RegressionTask, m: int, *, endless: bool = False) -> Matrix:
    r"""Return the map of in-context regression on the first m components, $\hat y = \beta^\top A_m x_q$.

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

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), 10)
    >>> maps = [sw.theory.linear.principal_component_regression_map(task, 1, endless=end) for end in (True, False)]
    >>> [each.diagonal().round(2).tolist() for each in maps]
    [[1.67, 0.0], [1.32, 0.0]]
    """
    m, dim = _components_of(task, m)
    if not endless:
        return fixed_point(task, range(m)).effective_map
    spread, axes = np.linalg.eigh(task.task_covariance)
    root = (axes * np.sqrt(np.clip(spread, 0.0, None))) @ axes.T
    sizes, vectors = np.linalg.eigh(root @ task.covariance @ root)
    sizes, vectors = sizes[::-1][:m], vectors[:, ::-1][:, :m]
    kept = sizes > dim * np.finfo(float).eps * np.trace(task.covariance @ task.task_covariance)
    half = root @ vectors[:, kept]
    return (half / sizes[kept]) @ half.T


def _components_of(task: RegressionTask, m: int) -> tuple[int, int]:
    """The number of components asked for, and how many there are."""
    require_regression(task)
    m, dim = checks.whole("number of components", m, least=0), len(task.covariance)
    if m > dim:
        raise InvalidInput(f"{m} components are asked for; there are {dim}, so give m from 0 to {dim}")
    return m, dim


def regression_difference(task: RegressionTask, m: int) -> float:
    r"""Return the mean squared difference of predictions at $\mathcal M_m$ from those of regression in context.

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

    >>> for length in (100, 1000):
    ...     task = sw.tasks.InContextRegression(sw.tasks.covariance([0.6, 0.4]), length)
    ...     print(f"{sw.theory.linear.regression_difference(task, 1):.5f}")
    0.01187
    0.00120
    """
    m, dim = _components_of(task, m)
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
    held = components(task).gains[:m] / kept
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
def closest_pcr(task: RegressionTask, effective_map: Matrix) -> ClosestRegression:
    r"""Return the number of components with which principal component regression predicts most like a map.

    It is the m of `principal_component_regression_map(task, m)`. Squared distances are
    $\|B\|^2 + \sum_{d\le m}(\gamma_d - 2\sqrt{\gamma_d}\,b_d)$ in the terms of
    `nearest_fixed_point`, so all m are compared at once. Where gains are equal the components are rotated to fit.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `RegressionTask` of one output.
    - `effective_map`: the map A of a model, of shape (dim, dim), with attention divided by N.

    **Returns:** the `ClosestRegression`.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([0.4, 0.3, 0.2, 0.1]), 31)
    >>> closest = sw.theory.linear.closest_pcr(task, 0.9 * sw.theory.linear.fixed_point(task, [0, 1]).effective_map)
    >>> closest.m, round(closest.distance, 3), round(closest.excess, 4)
    (2, 0.079, 0.0062)
    """
    basis, held = shares(task, effective_map)
    squares = np.concatenate([[0.0], np.cumsum(basis.gains * (1 - 2 * held))])
    m = int(np.argmin(squares))
    regression = basis.maps[:m].sum(axis=0)
    excess = loss_at(task, effective_map) - loss_at(task, regression)
    return ClosestRegression(m, prediction_distance(task, effective_map, regression), excess)
