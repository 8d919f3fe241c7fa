"""A run, or an ensemble of runs, as a labeled data set."""

from typing import Any, TypeVar

import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import PAPER_UNIT, TIME_UNIT
from stepwell.models import AbstractModel, is_attention

from ._model import described_class, hashed_fields, model_settings, rebuilt
from ._provenance import provenance

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
    """Label what a run recorded, as one data set.

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

    >>> import jax
    >>> import numpy as np
    >>> import stepwell as sw
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
    variables: dict[str, Any] = {}
    for name, values in curves.items():
        inner = tuple(f"{name}_{number}" for number in range(values.ndim - 2))
        variables[name] = (("run", axis, *inner), values)
    for name, values in weights.items():
        variables[name] = (("run", weight_axis, *model.weight_dims[name]), values)
    coordinates = {axis: points, weight_axis: weight_points}
    result = xr.Dataset(variables, coordinates)
    result = result.assign_coords(run=np.arange(result.sizes["run"]))
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

    >>> import jax
    >>> import stepwell as sw
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

    **Example:**

    The loss of the last model is the last loss recorded:

    >>> import jax
    >>> import numpy as np
    >>> import stepwell as sw
    >>> objective = sw.objectives.Population(sw.tasks.InContextRegression(np.eye(2), 10))
    >>> model = sw.models.MergedAttention.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
    >>> trajectory = sw.dynamics.descend(model, objective, rate=0.05, steps=20, progress=False)
    >>> last = sw.trajectory.model_at(trajectory)
    >>> np.allclose(objective(last), trajectory.loss[0, -1])
    True
    """
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
