"""Whether the weights of a model are what training and a trajectory take them for."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from ._model import AbstractModel
from ._weight_names import TAKEN, array_names, weight_at


@checked
def check_weights(model: AbstractModel) -> None:
    """Raise `InvalidInput` unless the arrays of a model are the weights that `weight_dims` names, as it names them.

    All arrays of a model are trained. One that is not named would be trained and not recorded; one whose dimensions are
    wrong would be noticed only after the run.

    **Arguments:**

    - `model`: the model to check.

    **Example:**

    A class of this package passes, and nothing is returned:

    >>> import jax
    >>> import stepwell as sw
    >>> sw.models.check_weights(sw.models.CubicMLP.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0)))
    """
    name = type(model).__name__
    sizes: dict[str, tuple[int, str]] = {}
    for weight, dims in model.weight_dims.items():
        try:
            value = weight_at(model, weight)
        except (AttributeError, KeyError, IndexError):
            fields = [field.name for field in dataclasses.fields(model)]
            raise InvalidInput(
                f"weight_dims of {name} names {weight!r}, which is no field; its fields are {fields}"
            ) from None
        if not eqx.is_inexact_array(value):
            kind = f"an array of {value.dtype}" if eqx.is_array(value) else f"a {type(value).__name__}"
            raise InvalidInput(
                f"the weight {weight} of {name} is {kind}; weights are arrays of floats, so keep "
                f"jnp.asarray({weight}, float)"
            )
        if jnp.iscomplexobj(value):
            raise InvalidInput(f"the weight {weight} of {name} is complex; keep its real and imaginary parts instead")
        if len(dims) != value.ndim or len(set(dims)) != len(dims):
            raise InvalidInput(
                f"weight_dims of {name} gives {weight} the dimensions {dims}, and its shape is {value.shape}; give one "
                "name for each dimension, all different"
            )
        taken = {weight, *dims} & set(TAKEN)
        if taken:
            raise InvalidInput(f"weight_dims of {name} uses {sorted(taken)}, as every trajectory does; rename them")
        for dim, size in zip(dims, value.shape, strict=True):
            known, where = sizes.setdefault(dim, (size, weight))
            if known != size:
                raise InvalidInput(
                    f"weight_dims of {name} has a dimension {dim!r} of size {known} in {where} and {size} in {weight}; "
                    "give them different names"
                )
    fields = {field.name: getattr(model, field.name, None) for field in dataclasses.fields(model)}
    others = [array for array in array_names(fields) if array not in model.weight_dims]
    if others:
        raise InvalidInput(
            f"{name} has arrays in {', '.join(others)}, which weight_dims does not name, and every array is trained; "
            "name weights there, or leave weight_dims out, and keep constants as tuples in static fields"
        )
