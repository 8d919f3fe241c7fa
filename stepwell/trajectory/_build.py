"""A run, or an ensemble of runs, as a labelled data set."""

from typing import Any, TypeVar

import numpy as np
import xarray as xr

from stepwell._errors import InvalidInput
from stepwell.models import AbstractModel

from ._provenance import provenance

Model = TypeVar("Model", bound=AbstractModel)

TIME_UNIT = "t/tau, with tau dW/dt = -1/2 dL/dW"


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

    - `axis`, `points`: the name and the values of the axis of curves, `step` or `time`.
    - `curves`: arrays (run, axis, …) by name.
    - `weight_axis`, `weight_points`: the name and the values of the axis of weights, `snapshot` or `time`.
    - `weights`: arrays (run, weight_axis, …) by name, with the dimensions that `model.weight_dims` names after that.
    - `configuration`: what made the run; it becomes an attribute, as `outcome` and `message` do.
    - `outcome`: a word, "finished", "converged", "diverged", "interrupted", …; `message`: a line that explains it.
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
    result[axis].attrs["units"] = "step" if axis == "step" else TIME_UNIT
    result[weight_axis].attrs["units"] = "step" if weight_axis == "snapshot" else TIME_UNIT
    if "loss" in result:
        result["loss"].attrs["long_name"] = "mean squared error"
    return result


def model_at(trajectory: xr.Dataset, template: Model, *, run: int = 0, index: int = -1) -> Model:
    """The model as it was at one recorded point.

    `template` is a model of the shape that was trained, whose weights are replaced. `run` is the member of an ensemble;
    `index` counts along `snapshot` (or `time`), by default the last.
    """
    axis = "snapshot" if "snapshot" in trajectory.dims else "time"
    missing = [name for name in template.weight_dims if name not in trajectory]
    if missing:
        raise InvalidInput(
            f"the trajectory has no weights {missing}; it was not recorded from {type(template).__name__}"
        )
    chosen = trajectory.isel({"run": run, axis: index})
    return template.with_weights({name: chosen[name].values for name in template.weight_dims})
