"""What was recorded: the weights of attention by name, and models of any class at every point."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from stepwell import models
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import imported_class
from stepwell._util.runs import with_runs
from stepwell.models import AbstractAttention, AbstractModel, theory_of
from stepwell.trajectory import model_at, model_settings

_TOGETHER = 64
"""Recorded points at which something is computed at a time."""


class Weights(NamedTuple):
    """Weights of attention by name, over (run, point, …), with the points of the `axis`, which is `snapshot` or `time`;
    their further dimensions are those of `weight_dims` of its class, the `model`, whose equations are `theory`.
    """

    model: Any
    theory: str
    axis: str
    points: Float[np.ndarray, " point"]
    runs: np.ndarray
    outputs: int
    by_name: dict[str, np.ndarray]

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        return {"run": self.runs, self.axis: self.points}

    def for_theory(self) -> dict[str, np.ndarray]:
        """What the theory of this kind reads of them, for one output, without label blocks."""
        if self.outputs != 1:
            raise InvalidInput(f"the model has {self.outputs} outputs; this probe is for models with one output")
        return self.model.theory_weights(self.by_name)


def weight_axis(trajectory: xr.Dataset) -> str:
    """The axis of weights, `snapshot` or `time`."""
    return "snapshot" if "snapshot" in trajectory.dims else "time"


def _over_points(
    trajectory: xr.Dataset, axis: str, weight_dims: Mapping[str, tuple[str, ...]]
) -> dict[str, np.ndarray]:
    return {name: trajectory[name].transpose("run", axis, *dims).values for name, dims in weight_dims.items()}


def weights_of(trajectory: xr.Dataset) -> Weights:
    """The weights in a trajectory of `descend` or `flow`; `InvalidInput` if it is not of an attention with a theory."""
    trajectory = with_runs(trajectory)
    axis = weight_axis(trajectory)
    for model, theory in _candidates(trajectory).items():
        dims = {name: {"run", axis, *dims} for name, dims in model.weight_dims.items()}
        if all(name in trajectory and set(trajectory[name].dims) == names for name, names in dims.items()):
            points, runs = trajectory[axis].values.astype(float), trajectory["run"].values
            by_name = _over_points(trajectory, axis, model.weight_dims)
            return Weights(model, theory, axis, points, runs, trajectory.sizes.get("output", 1), by_name)
    raise InvalidInput("the trajectory has no weights of separate or merged attention over (run, snapshot or time)")


def _candidates(trajectory: xr.Dataset) -> dict[Any, str]:
    """Classes of attention that the run may be of, with their theory; where it does not say, those with more weights
    first, as the weights of one may be among those of another.

    Weights of a class of one's own may have any names: what they mean is for the class to declare.
    """
    settings = model_settings(trajectory)
    if "module" in settings:
        owner = imported_class(settings)
        theory = None if owner is None else theory_of(owner)
        if owner is not None and theory is not None and theory != "units":
            return {owner: theory}
        lacks = "declares no keys, queries and values (declared_form = 'separate')" if owner else "is not imported"
        raise InvalidInput(
            f"the run is of {settings['class']} of {settings['module']}, which {lacks}; this is for separate and "
            "merged attention, and classes with that declaration. The probes effective_map and winners take others"
        )
    ours = [each for each in vars(models).values() if isinstance(each, type) and issubclass(each, AbstractAttention)]
    named = {each: theory_of(each) for each in ours if each.__name__ == settings.get("class", each.__name__)}
    known = {each: theory for each, theory in named.items() if theory is not None}
    return dict(sorted(known.items(), key=lambda item: -len(item[0].weight_dims)))


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
    trajectory = with_runs(trajectory)
    if model is not None:
        template = model_at(trajectory, model)
    elif "class" in model_settings(trajectory):
        template = _described(trajectory)
    else:
        found = _known(trajectory)
        template = found.model(**{name: jnp.asarray(array[0, 0]) for name, array in found.by_name.items()})
    axis = weight_axis(trajectory)
    coordinates = {"run": trajectory["run"].values, axis: trajectory[axis].values.astype(float)}
    return Recorded(template, axis, _over_points(trajectory, axis, template.weight_dims), coordinates)


def _known(trajectory: xr.Dataset) -> Weights:
    try:
        return weights_of(trajectory)
    except InvalidInput as error:
        raise InvalidInput(
            f"{error}, and does not say of which class its model is; give one of this class and shape as the argument "
            "model, such as experiment.build().model"
        ) from None


def _described(trajectory: xr.Dataset) -> AbstractModel:
    try:
        return model_at(trajectory)
    except InvalidInput as error:
        raise InvalidInput(f"{error} (as the argument model)" if "template" in str(error) else str(error)) from None


@eqx.filter_jit
def _over(read: Callable[[AbstractModel], Any], template: AbstractModel, weights: dict[str, Array]) -> Any:
    return jax.lax.map(lambda each: read(template.with_weights(each)), weights, batch_size=_TOGETHER)
