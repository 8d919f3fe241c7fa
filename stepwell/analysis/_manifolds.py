"""How near the weights of a network of units are to those of a narrower one."""

from typing import Literal, get_args

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.models import (
    AbstractModel,
    ActivationUnits,
    CubicMLP,
    MergedAttention,
    PolynomialUnits,
    SeparateAttention,
)

from ._recorded import Recorded, recorded

Relation = Literal["dependent", "proportional", "zero"]
"""What units of a wide network are like where it moves as a narrower one."""

_ROUNDS = 20
"""Times at which units are assigned to rays anew; the rays of runs near a manifold settle after two or three."""


@checked
def manifold_distance(
    trajectory: xr.Dataset, width: int, relation: Relation | None = None, *, model: AbstractModel | None = None
) -> xr.DataArray:
    r"""Return how far the weights are from a network of fewer units, at every recorded point.

    The weights of unit i, outer and inner ones together, are $\theta_i$; in attention its units are the heads. Gradient
    flow does not leave the manifolds on which (Zhang, Saxe, Latham, arXiv 2512.20607, Theorem 3)

    - "dependent": the $\theta_i$ span `width` dimensions, of units that are linear in their inner weights;
    - "proportional": each $\theta_i$ is on one of `width` rays, of ReLU units;
    - "zero": all but `width` of the $\theta_i$ are zero, of units of higher order, and of attention with separate key
      and query.

    The distance is the least change of weights to such a manifold, $\min (\sum_i |\delta\theta_i|^2)^{1/2}$. For
    "dependent" and "zero" it is exact: the singular values of the matrix of all $\theta_i$, or the norms of the units,
    beyond the largest. That of rays is of the best that were found, beginning from the directions of all units: an
    upper bound.

    **Arguments:**

    - `trajectory`: a run of a network of units, of linear attention or of `CubicMLP`.
    - `width`: how many units the narrower network has; 0 is the origin.
    - `relation`: as above; by default that which belongs to the model.
    - `model`: a model of the class and shape that was trained; by default one of the class that the trajectory names.

    **Returns:** the distance over (run, snapshot or time), in units of the weights.

    **Example:** a quadratic network of two units learns one direction, and then the other.

    >>> task = sw.tasks.GaussianTeacher([0.5, 0.3], [1.0, 1.0], degree=2)
    >>> model = sw.models.PolynomialUnits.random(dim=2, units=2, degree=2, scale=0.01, key=jax.random.key(3))
    >>> loss = sw.objectives.FeatureMoments(task.moments(2))
    >>> trajectory = sw.dynamics.flow(model, loss, until=200.0, progress=False)
    >>> sw.analysis.manifold_distance(trajectory, 2).values.max().item()
    0.0
    """
    width = checks.whole("width", width, least=0)
    along, units, relation = _units(trajectory, relation, model)
    return _of(along, _distance(units, width, relation), f"distance to {width} units")


@checked
def effective_width(
    trajectory: xr.Dataset,
    tolerance: float = 0.1,
    relation: Relation | None = None,
    *,
    model: AbstractModel | None = None,
) -> xr.DataArray:
    r"""Return of how many units a network moves, at every recorded point.

    It is the smallest width whose `manifold_distance` is at most the part `tolerance` of the largest norm
    $(\sum_i |\theta_i|^2)^{1/2}$ of all weights along the run: 0 before the first drop of the loss, and one more after
    each drop at which a unit, or a direction of units, is recruited.

    **Arguments:**

    - `trajectory`, `relation`, `model`: as for `manifold_distance`.
    - `tolerance`: the part of the weights that counts as nothing; above 0, below 1.

    **Returns:** integers over (run, snapshot or time).

    **Example:**

    >>> task = sw.tasks.GaussianTeacher([1.0, 0.5], [1.0, 1.0], separate=True)
    >>> model = sw.models.PolynomialUnits.random(dim=2, units=9, outputs=2, scale=1e-4, key=jax.random.key(0))
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.FeatureMoments(task.moments()), progress=False)
    >>> np.unique(sw.analysis.effective_width(trajectory)).tolist()
    [0, 1, 2]
    """
    tolerance = checks.number("tolerance", tolerance, least=0.0, above=True)
    if tolerance >= 1:
        raise InvalidInput(f"tolerance is {tolerance:g}; give one below 1, or all weights count as nothing")
    along, units, relation = _units(trajectory, relation, model)
    allowed = tolerance * _distance(units, 0, relation).max(axis=1, keepdims=True)
    made = np.zeros(units.shape[:2], int)
    for width in range(units.shape[2]):
        beyond = _distance(units, width, relation) > allowed
        made[beyond] = width + 1
        if not beyond.any():
            break
    return _of(along, made, "effective width")


def _of(along: Recorded, values: np.ndarray, name: str) -> xr.DataArray:
    return xr.DataArray(values, along.coordinates, ("run", along.axis), name.split()[0], {"long_name": name})


def _units(
    trajectory: xr.Dataset, relation: Relation | None, model: AbstractModel | None
) -> tuple[Recorded, Float[np.ndarray, "run point unit weights"], Relation]:
    """All weights of each unit at every point, and the relation."""
    along = recorded(trajectory, model)
    if relation is None:
        relation = _relation_of(along.template)
    checks.one_of("relation", relation, get_args(Relation))
    return along, along.over(_by_unit), relation


def _relation_of(model: AbstractModel) -> Relation:
    """The relation that the flow of a model keeps, by its class, as subclasses may be other models."""
    if type(model) in (MergedAttention, CubicMLP) or (type(model) is PolynomialUnits and model.degree == 1):
        relation: Relation | None = "dependent"
    elif type(model) in (SeparateAttention, PolynomialUnits):
        relation = "zero"
    else:
        of: dict[str, Relation] = {"relu": "proportional", "x-tanh": "zero"}
        relation = of.get(model.nonlinearity) if type(model) is ActivationUnits else None
    if relation is None or getattr(model, "activation", "linear") != "linear":
        raise InvalidInput(
            f"which relation of units the flow of {model!r} keeps is not known; give relation, one of "
            f"{', '.join(map(repr, get_args(Relation)))}"
        )
    return relation


def _by_unit(model: AbstractModel) -> Float[Array, "unit weights"]:
    """The weights of each unit, or head, one after another."""
    parts = []
    for name, weight in model.weights().items():
        axes = [axis for axis, dim in enumerate(model.weight_dims[name]) if dim in ("unit", "head")]
        if len(axes) != 1:
            raise InvalidInput(
                f"the weight {name} of {type(model).__name__} has the dimensions {model.weight_dims[name]}; in a "
                "network of units every weight has one that is called unit or head"
            )
        parts.append(jnp.moveaxis(weight, axes[0], 0).reshape(weight.shape[axes[0]], -1))
    return jnp.concatenate(parts, axis=1)


def _distance(
    units: Float[np.ndarray, "run point unit weights"], width: int, relation: Relation
) -> Float[np.ndarray, "run point"]:
    if relation == "proportional":
        flat = units.reshape(-1, *units.shape[2:])
        return np.array([_to_rays(each, width) for each in flat]).reshape(units.shape[:2])
    if relation == "dependent":
        sizes = np.linalg.svd(units, compute_uv=False)
    else:
        sizes = -np.sort(-np.linalg.norm(units, axis=-1), axis=-1)
    return np.linalg.norm(sizes[..., width:], axis=-1)


def _to_rays(units: Float[np.ndarray, "unit weights"], width: int) -> float:
    """The distance to the best rays found: first those through single units, one by one; then their own best."""
    units = units[np.any(units != 0.0, axis=1)]
    if width == 0 or width >= len(units):
        return float(np.linalg.norm(units)) if width == 0 else 0.0
    through = units / np.linalg.norm(units, axis=1, keepdims=True)
    taken = np.maximum(units @ through.T, 0.0) ** 2  # of each unit, by a ray through every other
    rays, covered = np.empty((0, units.shape[1])), np.zeros(len(units))
    for _ in range(width):
        best = np.maximum(taken - covered[:, None], 0.0).sum(axis=0).argmax()
        rays, covered = np.vstack([rays, through[best]]), np.maximum(covered, taken[:, best])
    found = np.inf
    for _ in range(_ROUNDS):
        along = np.maximum(units @ rays.T, 0.0)
        nearest = along.argmax(axis=1)
        left = float(np.linalg.norm(units - along.max(axis=1)[:, None] * rays[nearest]))
        if not left < found:
            break
        found = left
        for number in range(width):
            own = units[(nearest == number) & (along[:, number] > 0.0)]
            if len(own):
                direction = np.linalg.svd(own, full_matrices=False)[2][0]
                rays[number] = direction * np.sign(np.sum(own @ direction))
    return found
