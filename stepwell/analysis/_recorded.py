"""The models along a recorded run: what a class declares of itself, at every point."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel
from stepwell.trajectory import model_at, model_settings

from ._weights import weights_of

_TOGETHER = 64
"""Recorded points at which something is computed at a time."""


class Recorded(NamedTuple):
    """A model of the class that was trained, and its weights by name over (run, point, …)."""

    template: AbstractModel
    axis: str
    weights: dict[str, np.ndarray]
    coordinates: dict[str, np.ndarray]

    def over(self, read: Callable[[AbstractModel], Any]) -> Any:
        """What `read` returns of the model at every point: arrays over (run, point, …)."""
        lead = tuple(each.size for each in self.coordinates.values())
        flat = {name: jax.device_put(each.reshape(-1, *each.shape[2:])) for name, each in self.weights.items()}
        values = _over(read, self.template, flat)
        return jax.tree.map(lambda each: np.asarray(each).reshape(*lead, *each.shape[1:]), values)


def recorded(trajectory: xr.Dataset, model: AbstractModel | None) -> Recorded:
    """The models of a trajectory: like the one given, or of the class that its provenance names.

    Where the provenance names none, weights called as those of separate or merged attention are these.
    """
    if model is None:
        template = _described(trajectory) if "class" in model_settings(trajectory) else _named(trajectory)
    else:
        template = model_at(trajectory, model)
    axis = "snapshot" if "snapshot" in trajectory.dims else "time"
    orders = {name: ("run", axis, *dims) for name, dims in template.weight_dims.items()}
    weights = {name: trajectory[name].transpose(*order).values for name, order in orders.items()}
    coordinates = {"run": trajectory["run"].values, axis: trajectory[axis].values.astype(float)}
    return Recorded(template, axis, weights, coordinates)


def _described(trajectory: xr.Dataset) -> AbstractModel:
    try:
        return model_at(trajectory)
    except InvalidInput as error:
        raise InvalidInput(f"{error} (as the argument model)" if "template" in str(error) else str(error)) from None


def _named(trajectory: xr.Dataset) -> AbstractModel:
    weights = weights_of(trajectory)
    return weights.model(**{name: jnp.asarray(array[0, 0]) for name, array in weights.by_name.items()})


@eqx.filter_jit
def _over(read: Callable[[AbstractModel], Any], template: AbstractModel, weights: dict[str, Array]) -> Any:
    return jax.lax.map(lambda each: read(template.with_weights(each)), weights, batch_size=_TOGETHER)
