"""The model of a trajectory, from what its provenance says."""

import dataclasses
import json
from typing import Any

import jax.numpy as jnp
import xarray as xr

from stepwell import models
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import imported_class
from stepwell.models import AbstractModel


@checked
def model_settings(trajectory: xr.Dataset) -> dict[str, Any]:
    """Return what a trajectory says about its model: its class, its settings, and hashes of its weights.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.

    **Returns:** the description; of an ensemble that of its members. It is empty where the provenance has none.

    **Example:**

    >>> model = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> loss = sw.Population(sw.InContextRegression(sw.covariance([1.0, 0.5]), 31))
    >>> settings = sw.trajectory.model_settings(sw.descend(model, loss, rate=0.1, steps=2, progress=False))
    >>> settings["class"], settings["normalization"]
    ('SeparateAttention', '1/N')
    """
    try:
        model = json.loads(trajectory.attrs.get("configuration", "{}")).get("model", {})
    except (ValueError, TypeError, AttributeError):
        return {}
    model = model.get("stacked", model) if isinstance(model, dict) else {}
    return model if isinstance(model, dict) else {}


def described_class(trajectory: xr.Dataset) -> type[AbstractModel]:
    """The class of the model, which may be outside of this package."""
    settings = model_settings(trajectory)
    name, module = settings.get("class"), settings.get("module", "stepwell.models")
    if name is None:
        raise InvalidInput("the trajectory does not say which model was trained; give a template of the same class")
    owner = imported_class(settings, models)
    if owner is None or not issubclass(owner, AbstractModel):
        raise InvalidInput(
            f"the model is of the class {name} of {module}, which is not imported; import it before, or give a "
            f"template: a model of this class and shape"
        )
    return owner


def hashed_fields(trajectory: xr.Dataset) -> list[str]:
    """The fields of the model whose arrays are described by a hash, since the trajectory has them."""
    return [name for name, of in model_settings(trajectory).items() if isinstance(of, dict) and "sha256" in of]


def rebuilt(owner: type[AbstractModel], settings: dict[str, Any], weights: dict[str, Any]) -> AbstractModel:
    """A model of these settings and weights, field by field: what its constructor would compute of them is given."""
    fields = {field.name for field in dataclasses.fields(owner)}
    lacking = {name for name in fields - set(weights) if name not in settings or isinstance(settings[name], dict)}
    if lacking:
        raise InvalidInput(
            f"the trajectory does not hold {', '.join(sorted(lacking))} of the {owner.__name__}; give a template of it"
        )
    model = object.__new__(owner)
    for name in fields:
        value = settings.get(name)
        made = jnp.asarray(weights[name]) if name in weights else tuple(value) if isinstance(value, list) else value
        object.__setattr__(model, name, made)
    return model
