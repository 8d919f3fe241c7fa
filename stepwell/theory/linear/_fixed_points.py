"""The fixed points of separate attention: one per subset of components, and the one nearest to a map."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util.arguments import checked

from .._task import LinearTask
from ._components import Components, components
from ._levels import fixed_point_loss
from ._principal import principal


@dataclass(frozen=True)
class FixedPoint:
    """Components S (`learned`, from 0 in falling order of gain), the map they make and the loss there."""

    learned: tuple[int, ...]
    effective_map: Float[np.ndarray, "dim dim"]
    loss: float


class FixedPoints:
    r"""All fixed points of a task in function space, $\sum_{d\in S} A_d$ for every subset S (see `components`).

    They come by number of components, then in lexicographic order, and are made one at a time: for D = 30 there are a
    billion. Components that bring no gain make no map and are left out. Where gains are equal the components, and so
    the fixed points, are a choice from a continuum.
    """

    def __init__(self, task: LinearTask):
        self._maps = components(task).maps
        self._principal = principal(task)
        self._useful = self._principal.useful

    @property
    def count(self) -> int:
        r"""How many there are: $2^D$, if every component brings a gain."""
        return 2**self._useful

    def __iter__(self) -> Iterator[FixedPoint]:
        for size in range(self._useful + 1):
            for learned in itertools.combinations(range(self._useful), size):
                yield self._point(learned)

    def path(self) -> list[FixedPoint]:
        r"""$\mathcal M_0, \dots, \mathcal M_D$: the subsets $\{1, \dots, m\}$, which small initial weights visit."""
        return [self._point(tuple(range(size))) for size in range(self._useful + 1)]

    def _point(self, learned: tuple[int, ...]) -> FixedPoint:
        return FixedPoint(learned, self._maps[list(learned)].sum(axis=0), fixed_point_loss(self._principal, learned))


@checked
def fixed_points(task: LinearTask) -> FixedPoints:
    """All fixed points of separate attention on a task, of any rank, made one at a time as they are iterated over.

    Merged attention has the first and the last of them.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.

    **Returns:** the `FixedPoints`, an iterable of `FixedPoint` with `learned`, `effective_map` and `loss`; its
    `count` is their number and its `path()` the list of those that training from small weights visits.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> points = sw.theory.linear.fixed_points(sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31))
    >>> points.count
    4
    >>> [(point.learned, round(point.loss, 3)) for point in points.path()]
    [((), 1.0), ((0,), 0.448), ((0, 1), 0.088)]
    """
    return FixedPoints(task)


@checked
def prediction_distance(
    task: LinearTask, first: Float[np.ndarray, "dim dim"], second: Float[np.ndarray, "dim dim"]
) -> float:
    r"""The root mean square difference of the predictions of two maps, over fresh contexts and queries.

    $\|C^{1/2}(A - A')\Lambda^{1/2}\|_F = \sqrt{\mathbb E(\hat y - \hat y')^2}$ is the loss's own metric:
    $L(A) = L(A^*) + \mathrm{distance}(A, A^*)^2$. The maps of components are orthogonal in it.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `first`, `second`: the maps A and A', of shape (dim, dim).

    **Returns:** the distance, in the units of a label.

    **Example:** the distance of zero from the best map is the root of what there is to gain.

    >>> import numpy as np
    >>> import stepwell as sw
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
def nearest_fixed_point(task: LinearTask, effective_map: Float[np.ndarray, "dim dim"]) -> Nearest:
    r"""The fixed point whose map predicts most like a given one, without a search through the subsets.

    In the metric of `prediction_distance` the components are orthogonal, of length $\sqrt{\gamma_d}$. So component d
    belongs to the nearest subset if the map has more than half of it, $b_d > \tfrac12\sqrt{\gamma_d}$ (`shares`).

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `effective_map`: the map A of a model, of shape (dim, dim), with attention divided by N.

    **Returns:** the nearest `point`, a `FixedPoint`, and its `distance` as `prediction_distance` has it.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    >>> nearest = sw.theory.linear.nearest_fixed_point(task, 0.9 * sw.theory.linear.fixed_point(task, [0, 1]))
    >>> nearest.point.learned, round(nearest.distance, 3)
    ((0, 1), 0.079)
    """
    basis, held = shares(task, effective_map)
    chosen = np.flatnonzero(held > 0.5)
    maps = basis.maps[chosen].sum(axis=0)
    learned = tuple(chosen.tolist())
    point = FixedPoint(learned, maps, fixed_point_loss(principal(task), learned))
    return Nearest(point, prediction_distance(task, effective_map, maps))


@checked
def shares(
    task: LinearTask, effective_map: Float[np.ndarray, "dim dim"]
) -> tuple[Components, Float[np.ndarray, " component"]]:
    r"""How much of each component a map has: $b_d/\sqrt{\gamma_d} = a_d^\top C A \Lambda M^\top a_d/\gamma_d$.

    Components whose gains are equal may be rotated among themselves; they are returned rotated to fit the map, the
    largest number first.

    **Arguments:**

    - `task`: the regression, an `InContextRegression` or another `LinearTask`.
    - `effective_map`: the map A of a model, of shape (dim, dim), with attention divided by N.

    **Returns:** the `Components` of the task, and a number for each: 1 if it is learned, 0 if it is not or has no gain.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 31)
    >>> first, second = (sw.theory.linear.fixed_point(task, [d]) for d in (0, 1))
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
