"""The vector field of the gradient flow, of one run or of all."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util.process import quick_jit
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective

from ._balance import Tied
from ._ensemble import Ensemble, map_members, skeleton_of, unflatten


class Field(eqx.Module):
    r"""$F(W) = -\tfrac12\, \partial L/\partial W$ of one run, on its state: its weights, or what `tie` makes."""

    objective: AbstractObjective
    skeleton: AbstractModel
    has_hessian: bool = eqx.field(static=True, default=True)
    """Whether the objective can be differentiated twice."""
    tied: Tied | None = None
    """Which weights are balanced; None where the state is the weights."""

    def loss(self, state: Float[Array, " state"]) -> Array:
        return self._loss(state if self.tied is None else self.tied.weights(state))

    def __call__(self, state: Float[Array, " state"]) -> Float[Array, " state"]:
        if self.tied is None:
            return -0.5 * jax.grad(self._loss)(state)
        return self.tied.velocity(-0.5 * jax.grad(self._loss)(self.tied.weights(state)))

    def jacobian(self, state: Float[Array, " state"]) -> Float[Array, "state state"]:
        """The derivatives of the field; without second gradients by differences, as good as half of the digits."""
        if self.has_hessian:
            return jax.jacfwd(self)(state)
        kinds = [leaf.dtype for leaf in jax.tree.leaves(self.objective) if eqx.is_inexact_array(leaf)]
        kinds += [leaf.dtype for leaf in jax.tree.leaves(self.skeleton) if isinstance(leaf, jax.ShapeDtypeStruct)]
        steps = max(float(jnp.finfo(kind).eps) for kind in kinds) ** 0.5 * (1 + jnp.abs(state))
        return (jax.vmap(self)(state + jnp.diag(steps)) - self(state)).T / steps

    def _loss(self, weights: Float[Array, " weights"]) -> Array:
        return self.objective(unflatten(weights, self.skeleton))


def make_fields(
    objective: AbstractObjective | Ensemble,
    model: AbstractModel,
    form: Callable[[AbstractObjective, AbstractModel], AbstractObjective],
) -> Any:
    """The field of models like this one, or an ensemble of fields; `form(objective, model)` is what is followed.

    A form other than the objective itself may have a first gradient only.
    """
    followed, skeleton = map_members(lambda each: form(each, model), objective), skeleton_of(model)
    if isinstance(followed, Ensemble):
        assert isinstance(objective, Ensemble)
        plain = type(followed.stacked) is type(objective.stacked)
        return Ensemble(Field(followed.stacked, skeleton, plain), followed.size)
    return Field(followed, skeleton, followed is objective)


def over_runs(fields: Any, function: Any, given: Any) -> Any:
    """`function(field, given)` for every run, vectorized; `fields` is one for all, or an ensemble."""
    if isinstance(fields, Ensemble):
        return eqx.filter_vmap(function)(fields.stacked, given)
    if jax.tree.leaves(given)[0].shape[0] == 1:  # products of matrices are faster than batches of one product
        alone = function(fields, jax.tree.map(lambda leaf: leaf[0], given))
        return jax.tree.map(lambda leaf: leaf[None], alone)
    return eqx.filter_vmap(function, in_axes=(None, 0))(fields, given)


@quick_jit
def losses(fields: Any, weights: Float[Array, "run weights"]) -> Float[Array, " run"]:
    """The loss of every run."""
    return over_runs(fields, Field.loss, weights)


@quick_jit
def losses_and_rates(fields: Any, weights: Float[Array, "run weights"]) -> tuple[Array, Array]:
    """The loss of every run, and the speed of its weights over their size."""

    def single(field: Field, weights: Array) -> tuple[Array, Array]:
        largest = jnp.max(jnp.abs(weights))
        speed = jnp.linalg.norm(field(weights) / largest)
        return field.loss(weights), speed / jnp.linalg.norm(weights / largest)

    return over_runs(fields, single, weights)


@quick_jit
def curves(fields: Any, observe: dict[str, Any], weights: Float[Array, "run time weights"]):
    """Loss and observables (run, time, …) and named weights (run, time, …)."""

    def along(field: Field, path: Array):
        def at(w: Array):
            model = unflatten(w, field.skeleton)
            return {"loss": field.loss(w), **{name: f(model) for name, f in observe.items()}}, model.weights()

        return jax.lax.map(at, path)

    return over_runs(fields, along, weights)
