"""The weights of a model by name, and names for their dimensions where its class gives none."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
from jaxtyping import AbstractArray

TAKEN = ("run", "step", "snapshot", "time", "loss")
"""Names that a trajectory uses itself."""


def array_names(model: Any) -> list[str]:
    """The names of all arrays of a model or a dictionary: `gate`, or `layers.0.weight` of a part of it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    return [".".join(map(_step, path)) for path, leaf in leaves if _is_array(leaf)]


def weight_at(model: Any, name: str) -> Any:
    """What is under a name, `layers.0.weight` being `model.layers[0].weight`."""
    for step in name.split("."):
        if isinstance(model, dict):
            model = model[step]
        elif isinstance(model, list | tuple) and step.isdigit():
            model = model[int(step)]
        else:
            model = getattr(model, step)
    return model


def default_dims(model: eqx.Module) -> dict[str, tuple[str, ...]]:
    """Names for the dimensions of all arrays of a model.

    They are those of the field's annotation, `Float[Array, "head dim dim"]` becoming (head, dim, dim_2); where it has
    none, or one that is taken or stands for two sizes, the dimension is called after the weight: `gate_0`.
    """
    hints = {field.name: field.type for field in dataclasses.fields(model)}
    sizes: dict[str, int] = {}
    dims: dict[str, tuple[str, ...]] = {}
    for name in array_names(model):
        shape = weight_at(model, name).shape
        annotated = _annotated(hints.get(name), len(shape))
        dims[name] = tuple(
            axis if axis and sizes.setdefault(axis, size) == size else f"{name}_{place}"
            for place, (axis, size) in enumerate(zip(annotated, shape, strict=True))
        )
    return dims


def _annotated(hint: Any, count: int) -> list[str | None]:
    """The name of each axis in an annotation, repeated ones numbered; None where there is none to use."""
    axes = hint.dim_str.split() if isinstance(hint, type) and issubclass(hint, AbstractArray) else []
    if len(axes) != count:
        return [None] * count
    numbered = [f"{axis}_{axes[: place + 1].count(axis)}" for place, axis in enumerate(axes)]
    names = [axis if number.endswith("_1") else number for axis, number in zip(axes, numbered, strict=True)]
    return [name if name.isidentifier() and name not in TAKEN else None for name in names]


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _step(key: Any) -> str:
    """One step of a path in a tree: the name of a field, the key of a dictionary, or the place in a list."""
    if isinstance(key, jax.tree_util.GetAttrKey):
        return key.name
    return str(key.key if isinstance(key, jax.tree_util.DictKey) else key.idx)
