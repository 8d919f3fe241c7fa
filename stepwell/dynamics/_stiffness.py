r"""The field of a run on the weights that its loss reads, and linear systems with its Jacobian.

A loss that is quadratic in coefficients $\theta(w)$ which are sums over heads has the Hessian

$\partial^2 L = \Theta^\top Q\, \Theta + \sum_c \frac{\partial L}{\partial \theta_c}\, \partial^2 \theta_c, \quad
\Theta = \partial\theta/\partial w, \quad Q = \partial^2 L/\partial\theta^2$

whose first part has the rank of $\theta$ at most and whose second part is a block for each head. Both are far cheaper
than differentiating the gradient by every weight, and where weights are many, the system is solved without ever forming
the whole matrix (Woodbury's identity).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from stepwell._util.process import quick_jit
from stepwell._util.types import Loss
from stepwell.models import SeparateAttention, is_proved, is_separate
from stepwell.objectives import AbstractQuadraticObjective

from ._ensemble import skeleton_of, unflatten
from ._field import Field
from ._rosenbrock import RODAS5P, Step, step
from .fast import AbstractResolvent, AbstractRosenbrock

Vector = Float[Array, " weights"]
Solve = Callable[[Vector], Vector]

_WHOLE = 100
"""Up to so many weights the whole matrix is formed, and for more where the product is of no lower rank."""


class Reading(eqx.Module):
    """The field on the weights that the loss reads. Others, such as label blocks held at zero, stay as they are."""

    field: Field
    places: tuple[int, ...] = eqx.field(static=True)
    """Where they are among all weights, those of a head together if `heads` is given."""
    heads: int | None = eqx.field(static=True)
    """How many heads there are, if the loss is quadratic in sums over them."""

    def full(self, weights: Vector) -> Float[Array, " every"]:
        """All weights, with zeros for those that the loss does not read; where some are tied, it reads all."""
        if self.field.tied is not None:
            return weights
        total = sum(
            leaf.size for leaf in jax.tree.leaves(self.field.skeleton) if isinstance(leaf, jax.ShapeDtypeStruct)
        )
        sources = np.full(total, len(self.places))
        sources[list(self.places)] = np.arange(len(self.places))
        return jnp.append(weights, 0.0)[sources]

    def loss(self, weights: Vector) -> Float[Array, ""]:
        return self.field.loss(self.full(weights))

    def loss_and_velocity(self, weights: Vector) -> tuple[Float[Array, ""], Vector]:
        if self.field.tied is not None:
            return self.field.loss(weights), self.field(weights)
        loss, gradient = jax.value_and_grad(self.loss)(weights)
        return loss, -0.5 * gradient

    def velocity(self, weights: Vector) -> Vector:
        return self.loss_and_velocity(weights)[1]

    def step(self, weights: Vector, length: Float[Array, ""]) -> tuple[Loss, Step]:
        """The loss, and a step of this length."""
        objective = self.field.objective
        if isinstance(objective, AbstractRosenbrock) and self.heads is not None:
            loss, results = objective.rosenbrock_step(weights.reshape(self.heads, -1), length, RODAS5P)
            after, estimate, *dense = results.reshape(-1, weights.size)
            return loss, Step(after, estimate, jnp.stack(dense))
        loss, velocity = self.loss_and_velocity(weights)
        solve = self.shifted(weights, 1 / (RODAS5P.gamma * length))
        return loss, step(self.velocity, solve, weights, velocity, length)

    def shifted(self, weights: Vector, shift: Float[Array, ""]) -> Solve:
        """r ↦ (shift - J)⁻¹ r, with J the Jacobian of the velocity at these weights."""
        if self.heads is None:
            return _whole(shift * jnp.eye(weights.size) - jax.jacrev(self.velocity)(weights))
        objective = self.field.objective
        if isinstance(objective, AbstractResolvent):
            solve = objective.resolvent(weights.reshape(self.heads, -1), shift)
            return lambda side: solve(side.reshape(self.heads, -1)).reshape(-1)
        blocks, left, right = self._parts(weights)
        blocks = blocks + shift * jnp.eye(blocks.shape[1])
        if weights.size > _WHOLE and 2 * left.shape[0] < weights.size:
            return _woodbury(blocks, left, right)
        diagonal = jnp.einsum("hij,hk->hikj", blocks, jnp.eye(self.heads)).reshape(weights.size, weights.size)
        return _whole(diagonal + left.T @ right)

    def _parts(self, weights: Vector) -> tuple[Array, Array, Array]:
        r"""(blocks, Θ, ½QΘ): -J is the block diagonal matrix plus $\Theta^\top \tfrac12 Q \Theta$."""
        objective = self.field.objective
        assert isinstance(objective, AbstractQuadraticObjective) and self.heads is not None

        def coefficients(weights: Vector) -> Array:
            return objective.coefficients(unflatten(self.full(weights), self.field.skeleton)).astype(weights.dtype)

        theta = coefficients(weights)
        pull = jax.grad(objective.quadratic)
        slope = pull(theta)
        by_weight = jax.jacrev(coefficients)(weights)
        curved = jax.vmap(lambda change: jax.jvp(pull, (theta,), (change,))[1], in_axes=-1, out_axes=-1)(by_weight)
        along = jax.grad(lambda weights: jnp.sum(slope * coefficients(weights)))
        # Heads do not meet in this gradient, so that one direction serves all of them.
        directions = jnp.tile(jnp.eye(weights.size // self.heads), (1, self.heads))
        columns = jax.vmap(lambda direction: jax.jvp(along, (weights,), (direction,))[1])(directions)
        blocks = 0.5 * columns.reshape(-1, self.heads, columns.shape[0]).transpose(1, 2, 0)
        return blocks, by_weight.reshape(-1, weights.size), 0.5 * curved.reshape(-1, weights.size)


def _whole(matrix: Float[Array, "weights weights"]) -> Solve:
    factors, _, order = jax.lax.linalg.lu(matrix)

    def solve(right: Vector) -> Vector:
        half = solve_triangular(factors, right[order], lower=True, unit_diagonal=True)
        return solve_triangular(factors, half)

    return solve


def _woodbury(
    blocks: Float[Array, "head block block"], left: Float[Array, "rank weights"], right: Float[Array, "rank weights"]
) -> Solve:
    r"""$(B + U^\top V)^{-1} = B^{-1} - B^{-1} U^\top (1 + V B^{-1} U^\top)^{-1} V B^{-1}$, for U `left`, V `right`."""
    heads, size, _ = blocks.shape
    inverses = jnp.linalg.inv(blocks)
    spread = jnp.einsum("hij,rhj->hir", inverses, left.reshape(-1, heads, size)).reshape(heads * size, -1)
    small = jnp.linalg.inv(jnp.eye(left.shape[0]) + right @ spread)

    def solve(given: Vector) -> Vector:
        apart = jnp.einsum("hij,hj->hi", inverses, given.reshape(heads, size)).reshape(-1)
        return apart - spread @ (small @ (right @ apart))

    return solve


def structure(field: Field, weights: Vector) -> tuple[tuple[int, ...], int | None]:
    """`places` and `heads` of a `Reading`: not a number in a place that is read makes the loss not a number."""
    model, quadratic = field.skeleton, isinstance(field.objective, AbstractQuadraticObjective)
    if field.tied is not None:
        return tuple(range(weights.size)), None
    if not is_proved(model):
        # Another model may keep a NaN out of its loss (jnp.where), or mix its heads.
        if not (quadratic and is_separate(model)):
            return tuple(range(weights.size)), None
        # That of the same form in the package does neither, and reads the same weights.
        options = {name: getattr(model, name) for name in ("activation", "normalization", "attends_query")}
        zeros = (jnp.zeros(part.shape, part.dtype) for part in (model.value, model.key, model.query))
        field = dataclasses.replace(field, skeleton=skeleton_of(SeparateAttention(*zeros, **options)))
        model = field.skeleton
    read = _read(field, weights)
    common = set.intersection(*map(set, model.weight_dims.values())) & {"head", "unit"}
    if not quadratic or not read.any() or not common:
        return tuple(np.flatnonzero(read).tolist()), None
    (head,) = common
    names = [each.name for each in dataclasses.fields(model) if each.name in model.weight_dims]  # as in the vector
    places_of = [(np.indices(getattr(model, name).shape), model.weight_dims[name].index(head)) for name in names]
    head_of = [indices[axis].reshape(-1) for indices, axis in places_of]
    heads = np.concatenate(head_of)[read]
    order = np.argsort(heads, kind="stable")
    places = tuple(np.flatnonzero(read)[order].tolist())
    sizes = np.bincount(heads)
    return places, int(sizes.size) if np.all(sizes == sizes[0]) else None


def _read(field: Field, weights: Vector) -> Bool[np.ndarray, " weights"]:
    """Which weights the loss reads.

    A polynomial reads the same everywhere, and at zero it is finite. Those of the package are sums of products with
    their coefficients, and read the same whatever these are, since zero times not a number is not a number: so the
    answer is kept for each shape.
    """
    if not isinstance(field.objective, AbstractQuadraticObjective):
        return ~np.isfinite(np.asarray(_spoilt(field, weights)))
    leaves, tree = jax.tree.flatten(field)
    kinds = jax.Array, np.ndarray, jax.ShapeDtypeStruct
    if type(field.objective).__module__.startswith("stepwell.") and all(isinstance(leaf, kinds) for leaf in leaves):
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        return _read_by_shape(tree, shapes, weights.size)
    return ~np.isfinite(np.asarray(_spoilt(field, jnp.zeros_like(weights))))


@functools.lru_cache(256)
def _read_by_shape(tree: Any, leaves: tuple[jax.ShapeDtypeStruct, ...], size: int) -> Bool[np.ndarray, " weights"]:
    """Which weights a field with such leaves reads, its coefficients zero."""
    zeros = jax.tree.unflatten(tree, [jnp.zeros(leaf.shape, leaf.dtype) for leaf in leaves])
    skeleton = jax.tree.unflatten(tree, leaves).skeleton
    return ~np.isfinite(np.asarray(_spoilt(dataclasses.replace(zeros, skeleton=skeleton), jnp.zeros(size))))


@quick_jit
def _spoilt(field: Field, weights: Vector) -> Vector:
    """The loss with each weight in turn not a number."""
    return jax.lax.map(lambda place: field.loss(weights.at[place].set(jnp.nan)), jnp.arange(weights.size))
