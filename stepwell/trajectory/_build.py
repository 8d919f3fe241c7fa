"""A run, or an ensemble of runs, as a labeled data set that says how it came about."""

import dataclasses
import json
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import PAPER_UNIT, TIME_UNIT
from stepwell._util.recipes import digest, packed, recipe_of
from stepwell._util.runs import with_runs
from stepwell._util.versions import versions
from stepwell.models import AbstractModel, is_attention
from stepwell.tasks import AbstractTask

from ._model import described_class, hashed_fields, model_settings, rebuilt

Model = TypeVar("Model", bound=AbstractModel)


@checked
def build(
    *,
    axis: str,
    points: np.ndarray,
    curves: dict[str, np.ndarray],
    weight_axis: str,
    weight_points: np.ndarray,
    weights: dict[str, np.ndarray],
    model: AbstractModel,
    configuration: dict[str, Any],
    outcome: str,
    message: str,
) -> xr.Dataset:
    """Return what a run recorded as one labeled data set.

    **Arguments:**

    - `axis`: the name of the axis of curves, `step` or `time`.
    - `points`: the values along that axis; a time is in units of τ.
    - `curves`: arrays (run, axis, …) by name, among them `loss`. Further dimensions are named after the curve,
      `name_0` and so on.
    - `weight_axis`: the name of the axis of weights, `snapshot` or `time`.
    - `weight_points`: the values along that axis, steps or times.
    - `weights`: arrays (run, weight_axis, …) by name, with the dimensions that `model.weight_dims` names after that.
    - `model`: a model of the class that was trained; only its `weight_dims` are read.
    - `configuration`: what made the run; `provenance` makes attributes of it.
    - `outcome`: how the run ended, such as "finished", "converged", "diverged" or "interrupted".
    - `message`: a line that explains the outcome.

    **Returns:** the trajectory, with the dimension `run`, the two axes as coordinates with their units, and the
    attributes `configuration`, `versions`, `outcome` and `message`.

    **Example:**

    >>> model = sw.models.CubicMLP.random(dim=1, heads=2, scale=0.1, key=jax.random.key(0))
    >>> trajectory = sw.trajectory.build(
    ...     axis="step", points=np.arange(3), curves={"loss": np.ones((1, 3))},
    ...     weight_axis="snapshot", weight_points=np.array([2]),
    ...     weights={name: np.asarray(weight)[None, None] for name, weight in model.weights().items()},
    ...     model=model, configuration={"rate": 0.1}, outcome="finished", message="",
    ... )
    >>> trajectory.readout.dims
    ('run', 'snapshot', 'output', 'head')
    """
    variables: dict[str, Any] = {
        name: (("run", axis, *(f"{name}_{number}" for number in range(values.ndim - 2))), values)
        for name, values in curves.items()
    }
    variables |= {name: (("run", weight_axis, *model.weight_dims[name]), each) for name, each in weights.items()}
    runs = np.arange(len(next(iter(weights.values()))))
    result = xr.Dataset(variables, {axis: points, weight_axis: weight_points, "run": runs})
    result.attrs = {**provenance(configuration), "outcome": outcome, "message": message}
    unit = time_unit(model)
    result[axis].attrs["units"] = "step" if axis == "step" else unit
    result[weight_axis].attrs["units"] = "step" if weight_axis == "snapshot" else unit
    if "loss" in result:
        result["loss"].attrs["long_name"] = "mean squared error"
    return result


def time_unit(model: AbstractModel) -> str:
    """Return what the flow time of a model is, as files say it.

    **Arguments:**

    - `model`: the model that is trained.

    **Returns:** the units: those of the paper's time where attention is linear and divided by N.

    **Example:**

    >>> model = sw.MergedAttention.random(dim=1, heads=1, scale=0.1, key=jax.random.key(0))
    >>> sw.trajectory.time_unit(model)
    't/tau, with tau dW/dt = -1/2 dL/dW and attention divided by N'
    """
    divided = is_attention(model) and model.activation == "linear" and model.normalization == "1/N"
    return PAPER_UNIT if divided else TIME_UNIT


@checked
def model_at(trajectory: xr.Dataset, template: Model | None = None, *, run: int = 0, at: float | None = None) -> Model:
    """Return the model as it was at one recorded point.

    **Arguments:**

    - `trajectory`: what `descend`, `online` or `flow` returned.
    - `template`: a model of the class and shape that was trained; its weights are replaced. By default the model is
      made of what the provenance of the trajectory says about it.
    - `run`: which run of an ensemble, counted from 0.
    - `at`: a step, or a time where there are no steps; the recorded point nearest to it is taken, by default the last.

    **Returns:** the model, like `template`, with the recorded weights.

    **Example:** the loss of the last model is the last loss recorded.

    >>> objective = sw.Population(sw.InContextRegression(np.eye(2), 10))
    >>> model = sw.MergedAttention.aligned(np.eye(2), heads=1, scale=0.1)
    >>> trajectory = sw.descend(model, objective, rate=0.05, steps=20, progress=False)
    >>> np.allclose(objective(sw.trajectory.model_at(trajectory)), trajectory.loss[0, -1])
    True
    """
    trajectory = with_runs(trajectory)
    axis = "snapshot" if "snapshot" in trajectory.dims else "time"
    owner = described_class(trajectory) if template is None else type(template)
    dims: Any = (owner if template is None else template).weight_dims
    # A class that does not name its weights has those of its fields of which there is a hash.
    names = hashed_fields(trajectory) if isinstance(dims, property) else list(dims)
    missing = [name for name in names if name not in trajectory.variables]
    if missing:
        raise InvalidInput(f"the trajectory has no weights {missing}; it was not recorded from {owner.__name__}")
    size = trajectory.sizes["run"]
    if not -size <= run < size:
        raise InvalidInput(f"run is {run}; the trajectory has {size} runs, counted from 0")
    if at is not None and not np.isfinite(at):
        raise InvalidInput(f"at is {at!r}; it must be a {'step' if axis == 'snapshot' else 'time'}, a finite number")
    place = -1 if at is None else int(np.abs(trajectory[axis].values - at).argmin())
    chosen = trajectory.isel({"run": run, axis: place})
    weights = {name: chosen[name].values for name in names}
    if template is not None:
        return template.with_weights(weights)
    return rebuilt(owner, model_settings(trajectory), weights)  # pyright: ignore[reportReturnType]


_WRITTEN_OUT = 1024
"""Arrays of up to this many entries are written out in a description."""
_PACKED = 2**18
"""Those of a task, of which there is nothing else to make it again, are packed up to this many entries (D = 512)."""


def describe(thing: Any) -> Any:
    """Return a JSON-ready description of a task, model, objective or plain value.

    **Arguments:**

    - `thing`: what to describe. Of the weights of a model, and of other arrays with more than 1024 entries, shape, type
      and a hash are described: the weights themselves are in the trajectory. The arrays of a task are kept, compressed.
      Of functions, and objects of other classes, there is a name, as `unrecorded`.

    **Returns:** dictionaries, lists, strings and numbers; an object has an entry `class` and one for each field. Where
    it is known which call made it, such as `task.sample` or `SeparateAttention.random`, an entry `made_by` has the call
    and its arguments, random keys among them: in place of its arrays, or beside the hashes of a model's weights.

    **Example:**

    >>> sw.trajectory.describe(sw.tasks.ContextLengths([5, 10]))
    {'class': 'ContextLengths', 'counts': [5, 10], 'probabilities': [0.5, 0.5]}
    """
    if isinstance(thing, eqx.Module):
        own = type(thing).__module__.partition(".")[0] == "stepwell"
        made: dict[str, Any] = {"class": type(thing).__name__} | ({} if own else {"module": type(thing).__module__})
        weights = thing.weight_dims if isinstance(thing, AbstractModel) else ()
        recipe = recipe_of(thing)
        for field in dataclasses.fields(thing):
            value = getattr(thing, field.name)
            if field.name in weights:
                made[field.name] = digest(np.asarray(value))
            elif recipe is not None and not (isinstance(thing, AbstractModel) or field.metadata.get("static", False)):
                continue  # the recipe builds it
            elif not field.name.startswith("_") or isinstance(thing, AbstractTask):
                # Of a task what it has computed is kept too: from its matrices other digits might come.
                made[field.name] = _of_task(value) if isinstance(thing, AbstractTask) else describe(value)
        return made if recipe is None else made | {"made_by": _recipe(recipe)}
    if isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
        thing = jax.random.key_data(thing)
    if isinstance(thing, jax.Array | np.ndarray | np.generic):
        array = np.asarray(thing)
        return array.tolist() if array.size <= _WRITTEN_OUT else digest(array)
    if isinstance(thing, dict):
        return {str(name): describe(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [describe(value) for value in thing]
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    return {"unrecorded": getattr(thing, "__qualname__", type(thing).__name__)}


def _recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """A call and its arguments. What members of an ensemble have in common is said once, the rest `for_each`."""
    if not isinstance(recipe.get("members"), list):
        return describe(recipe)
    members = [_recipe(member) for member in recipe["members"]]
    if any(member.keys() != members[0].keys() for member in members):
        return {"call": "Ensemble.of", "members": members}
    common = {name: value for name, value in members[0].items() if all(one[name] == value for one in members)}
    differing = {name: [one[name] for one in members] for name in members[0] if name not in common}
    return {"call": "Ensemble.of", "members": common, "for_each": differing}


def _of_task(value: Any) -> Any:
    """The description of a field of a task."""
    if isinstance(value, jax.Array | np.ndarray) and _WRITTEN_OUT < value.size <= _PACKED:
        return packed(np.asarray(value))
    return describe(value)


@checked
def provenance(configuration: dict[str, Any]) -> dict[str, str]:
    """Return the attributes that tell how a trajectory was made.

    **Arguments:**

    - `configuration`: tasks, models, settings and whatever else made the run, by name; see `describe`.

    **Returns:** `configuration` and `versions` (of Stepwell and the libraries it computes with), each a JSON text.

    **Example:**

    >>> sw.trajectory.provenance({"rate": 0.01, "lengths": sw.tasks.ContextLengths(5)})["configuration"]
    '{"rate": 0.01, "lengths": {"class": "ContextLengths", "counts": [5], "probabilities": [1.0]}}'
    """
    return {"configuration": json.dumps(describe(configuration)), "versions": json.dumps(versions())}
