"""Several runs as one: weights stacked along a first axis, vectorized by `jax.vmap`."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray, Array, Float

from stepwell._util.arguments import check_fields, checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import recipe_of, remember
from stepwell.models import AbstractModel

Member = TypeVar("Member", bound=eqx.Module)


class Ensemble(eqx.Module, Generic[Member]):
    """Models (or objectives) of one shape, stacked: every array has a first axis `run`.

    Build it with `Ensemble.of`, or of what `eqx.filter_vmap` stacked. `descend`, `flow` and `online` train all members
    as one program.

    **Arguments:**

    - `stacked`: a model or objective whose arrays have a first axis `run`; its settings are those of all members.
    - `size`: the number of members; by default the length of that axis.

    **Example:**

    >>> models = [sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=s) for s in (0.1, 0.01)]
    >>> ensemble = sw.dynamics.Ensemble.of(models)
    >>> ensemble.size, ensemble.stacked.query.shape  # (run, head, pair, dim)
    (2, (2, 2, 1, 2))
    >>> sw.dynamics.Ensemble.like(models[0], np.ones((1000, 16))).size
    1000
    """

    stacked: Member
    size: int = eqx.field(static=True)

    def __init__(self, stacked: Member, size: int | None = None):
        self.stacked = stacked
        self.size = _length(stacked) if size is None else size

    def __check_init__(self):
        check_fields(self)

    @classmethod
    @checked
    def of(cls, members: Sequence[Member]) -> "Ensemble[Member]":
        """Return a stack of members that differ in their arrays only.

        **Arguments:**

        - `members`: models, or objectives, of one class, with the same settings and arrays of the same shapes.

        **Returns:** the ensemble, its members in the order given.
        """
        if len(members) == 0:
            raise InvalidInput("an ensemble needs at least one member, got none")
        # Numbers that are fields of a model are settings, the same for all, and not weights.
        stacks = eqx.is_array if isinstance(members[0], AbstractModel) else eqx.is_array_like
        split = [eqx.partition(member, stacks) for member in members]
        shapes = [jax.tree.map(jnp.shape, arrays) for arrays, _ in split]
        settled = all(bool(eqx.tree_equal(rest, split[0][1])) for _, rest in split)
        if not settled or any(shape != shapes[0] for shape in shapes):
            raise InvalidInput(
                "members of an ensemble must have one shape and the same settings; run those that differ separately"
            )
        stacked: Any = eqx.combine(jax.tree.map(_stack, *(arrays for arrays, _ in split)), split[0][1])
        recipes = [recipe_of(member) for member in members]
        if isinstance(members[0], AbstractModel) and None not in recipes:
            remember(stacked, "Ensemble.of", members=recipes)
        return cls(stacked, len(members))

    @classmethod
    @checked
    def like(cls, template: Member, weights: Float[np.ndarray, "run weights"]) -> "Ensemble[Member]":
        """Return an ensemble of members like one model, with other weights.

        **Arguments:**

        - `template`: a model; of its own weights only shapes and order are read.
        - `weights`: all weights of each run in a row, in the order of the fields of the model.
        """
        size = flatten(template).size
        if weights.shape[1] != size or weights.shape[0] == 0:
            raise InvalidInput(f"weights have shape {weights.shape}; they must be (runs, {size}), at least one run")
        return cls(unflatten(jax.device_put(weights), skeleton_of(template)), weights.shape[0])

    @checked
    def member(self, number: int) -> Member:
        """Return the member with this number, counted from 0."""
        if not -self.size <= number < self.size:
            raise InvalidInput(f"number is {number}; there are {self.size} members, counted from 0")
        arrays, rest = eqx.partition(self.stacked, eqx.is_array)
        taken = jax.tree.map(lambda leaf: leaf[number] if is_key(leaf) else np.asarray(leaf)[number], arrays)
        return eqx.combine(jax.device_put(taken), rest)  # all at once: one call an array would take six times as long

    def largest(self) -> Member:
        """Return a member that has in every entry the largest absolute value over all members."""
        return jax.tree.map(
            lambda leaf: jax.device_put(np.abs(np.asarray(leaf)).max(axis=0)) if eqx.is_array(leaf) else leaf,
            self.stacked,
        )


def as_ensemble(model: Any) -> Any:
    """The model, in float64; as an ensemble if it is a stack, every array of which has one axis more than it declares.

    Weights of a lower precision are converted, so that all that is computed of them is float64. A class declares the
    axes of its weights by `weight_dims`, or by shapes in the annotations of its fields. Where it says nothing, a model
    is taken for a single one, and `check_fit` names the remedy if it does not work as one.
    """
    if any(map(_is_low, jax.tree.leaves(model))):
        model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if _is_low(leaf) else leaf, model)
    if isinstance(model, Ensemble):
        return model
    further = set()
    if isinstance(type(model).weight_dims, dict):
        with contextlib.suppress(AttributeError, LookupError):  # `check_weights` says which name is no weight
            further = {np.ndim(weight) - len(model.weight_dims[name]) for name, weight in model.weights().items()}
    else:
        axes = {field.name: _declared_axes(field.type) for field in dataclasses.fields(model)}
        further = {np.ndim(getattr(model, name)) - count for name, count in axes.items() if count is not None}
    return Ensemble(model) if further == {1} else model


def _is_low(leaf: Any) -> bool:
    return eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != jnp.float64


def may_be_stacked(model: Any) -> bool:
    """Whether the shapes of a model allow that it is a stack of several."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(model) if eqx.is_array(leaf)]
    return not isinstance(model, Ensemble) and all(shapes) and len({shape[0] for shape in shapes}) == 1


def _declared_axes(hint: Any) -> int | None:
    """How many axes an annotation such as `Float[Array, "head dim"]` lists; None if that is open."""
    shaped = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return len(hint.dim_str.split()) if shaped and not any(mark in hint.dim_str for mark in "*.") else None


def _length(stacked: Any) -> int:
    if not may_be_stacked(stacked):
        raise InvalidInput("the arrays of stacked have no common first axis; stack members by Ensemble.of")
    return next(leaf.shape[0] for leaf in jax.tree.leaves(stacked) if eqx.is_array(leaf))


def map_members(function: Callable[[Any], Any], thing: Any) -> Any:
    """`function(thing)`, or of an ensemble the ensemble of `function(member)`: of all at once where that can be."""
    if not isinstance(thing, Ensemble):
        return function(thing)
    first = thing.member(0)
    if function(first) is first:
        return thing
    if getattr(thing.stacked, "forms_stack", False):
        return Ensemble(function(thing.stacked), thing.size)
    return Ensemble.of([function(thing.member(number)) for number in range(thing.size)])


# Members are stacked and taken apart by NumPy: operations of JAX would be compiled for each shape they meet.


def _stack(*leaves: Any) -> Array:
    return jnp.stack(leaves) if is_key(leaves[0]) else jax.device_put(np.stack([np.asarray(leaf) for leaf in leaves]))


def is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def skeleton_of(model: Member) -> Member:
    """The model with shapes in place of arrays: hashable, so that it can be a static argument."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if eqx.is_array(x) else x, model)


def flatten(model: eqx.Module) -> Float[Array, "... weights"]:
    """All weights of one model in one vector, or of an ensemble in one vector each."""
    lead = (model.size,) if isinstance(model, Ensemble) else ()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))]
    return jax.device_put(np.concatenate([leaf.reshape(*lead, -1) for leaf in leaves], axis=-1))


def unflatten(vector: Float[Array | np.ndarray, "... weights"], skeleton: Member) -> Member:
    """The model whose weights are in `vector`; any axes before the last stay in front of every weight."""
    leaves, structure = jax.tree.flatten(skeleton)
    made, start = [], 0
    for leaf in leaves:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            size = leaf.size
            made.append(vector[..., start : start + size].reshape(*vector.shape[:-1], *leaf.shape).astype(leaf.dtype))
            start += size
        else:
            made.append(leaf)
    return jax.tree.unflatten(structure, made)
