"""A run recomputed from what its trajectory says."""

import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from stepwell import models, objectives, tasks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import imported_class, made_rate, remember, unpacked
from stepwell.dynamics import Ensemble, Record, descend, flow, online
from stepwell.models import AbstractModel
from stepwell.tasks import AbstractTask
from stepwell.trajectory import describe, load, model_at

from .._run import experiment_and_seeds


@checked
def rerun(
    trajectory: xr.Dataset | str | os.PathLike,
    *,
    model: AbstractModel | None = None,
    task: AbstractTask | None = None,
    objective: objectives.AbstractObjective | Ensemble | None = None,
    optimizer: Any = None,
    rate: Any = None,
    observe: dict[str, Callable] | None = None,
    progress: bool = True,
    throw: bool = True,
) -> xr.Dataset:
    """Recompute a run from what its trajectory says: on the same machine, bit for bit.

    A run of an experiment is that of the experiment and its seeds, which the trajectory remembers. A run of objects
    made by hand begins at its first recorded weights, and the rest is in its provenance: models, tasks and objectives
    of this package are rebuilt as the file describes them, and so are those of your own whose class is imported
    already and whose fields are numbers, strings and arrays. Nothing is imported because a file says so. What is still
    missing is asked for by an error.

    **Arguments:**

    - `trajectory`: the trajectory, or the netCDF file that `save` or `stepwell train` wrote. If it is of an
      experiment, model to observe are refused: the experiment says all of it.
    - `model`: a model of the class and shape that was trained, where that is a class of your own; its weights are
      replaced by the first ones recorded.
    - `task`: the task, where the file does not hold all of it: a class of your own, a function that samples.
    - `objective`: the loss, where the file does not hold all of it: sequences that were not drawn by a task, or a class
      of your own.
    - `optimizer`: the optimizer, where it was given as an object of optax; one given by name is in the file.
    - `rate`: the rate, where it was a function; most schedules of optax are in the file.
    - `observe`: observed curves, whose functions no file holds; by default they are left out.
    - `progress`: whether to show a progress bar.
    - `throw`: whether a run that does not come to its end raises, or its trajectory is returned; as in `descend`.

    **Returns:** the new trajectory.

    **Example:**

    >>> task = sw.InContextRegression(sw.covariance([1.0, 0.5]), 31)
    >>> model = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> run = sw.descend(model, sw.Population(task), rate=0.05, steps=60, progress=False)
    >>> again = sw.rerun(sw.save(run, "run.nc"), progress=False)
    >>> again.identical(run)
    True
    """
    stored = trajectory if isinstance(trajectory, xr.Dataset) else load(trajectory)
    if "experiment" in stored.attrs:
        parts = {"model": model, "task": task, "objective": objective, "optimizer": optimizer, "rate": rate}
        for name, part in {**parts, "observe": observe}.items():
            if part is not None:
                raise InvalidInput(
                    f"{name} is given, and the run is of an experiment, which says all of it; leave it out, or change "
                    "the experiment: Experiment.of(run).replace(…).run()"
                )
        experiment, seeds = experiment_and_seeds(stored)
        return experiment.run(seeds=seeds, progress=progress, throw=throw)
    try:
        about = json.loads(stored.attrs["configuration"])
        dynamics = about["dynamics"]
    except (KeyError, ValueError, TypeError):
        raise InvalidInput("the trajectory does not say how it was made; give one of descend, online or flow") from None
    if "flags" in about:
        raise InvalidInput("the file is of an earlier version, which had no experiments; train it again")
    start = _start(stored, about["model"], model)
    extra = {name: value for name, value in about.items() if name not in _KEPT.get(dynamics, ())}
    record = Record(**_points(about, stored), observe=observe)
    common: dict[str, Any] = {"record": record, "progress": progress, "configuration": extra or None, "throw": throw}
    if dynamics == "online":
        common |= {name: about[name] for name in ("steps", "first_step", "batch_size", "reduce")}
        drawn = _made(about["task"], "task", task)
        return online(start, drawn, key=_key(about["key"]), **_rule(about, rate, optimizer), **common)
    loss = _made(about["objective"], "objective", task) if objective is None else objective
    if dynamics == "flow":
        return flow(start, loss, **{name: about[name] for name in ("until", "solver", "rtol", "atol", "gap")}, **common)
    common |= {name: about[name] for name in ("steps", "first_step")}
    return descend(start, loss, **_rule(about, rate, optimizer), **common)


def _points(about: dict[str, Any], stored: xr.Dataset) -> dict[str, Any]:
    """What was recorded. Of a long list of points there is a hash alone: they are those of the trajectory."""
    axis = "time" if about["dynamics"] == "flow" else "step"
    axes, first = {"points": axis, "snapshots": "snapshot"}, about.get("first_step", 0)
    return {
        name: stored[axes[name]].values - first if isinstance(value, dict) else value
        for name, value in about["record"].items()
    }


def _start(stored: xr.Dataset, about: dict[str, Any], template: AbstractModel | None) -> Any:
    """The model at its first recorded weights. Where these have the recorded hashes, it is known how they were made."""
    first = float(stored["snapshot" if "snapshot" in stored.dims else "time"][0])
    runs = range(stored.sizes["run"]) if about.get("class") == "Ensemble" else [0]
    try:
        members = [model_at(stored, template, run=number, at=first) for number in runs]
    except InvalidInput as error:
        if template is not None:
            raise
        raise InvalidInput(f"{error}, as rerun(…, model=…)") from None
    model: Any = Ensemble.of(members) if "stacked" in about else members[0]
    weights, about = (model.stacked, about["stacked"]) if "stacked" in about else (model, about)
    described = describe(weights)
    if "made_by" in about and all(described.get(name) == about.get(name) for name in weights.weight_dims):
        remember(weights, **about["made_by"])
    return model


_TRAINED = ("dynamics", "model", "rate", "optimizer", "steps", "first_step", "record", "observed")
_KEPT = {
    "flow": ("dynamics", "model", "objective", "until", "solver", "rtol", "atol", "record", "gap", "observed", "work"),
    "descend": (*_TRAINED, "objective"),
    "online": (*_TRAINED, "task", "batch_size", "reduce", "key"),
}  # fmt: skip
"""What the dynamics write into the provenance themselves; the rest was given as `configuration`."""


def _rule(about: dict[str, Any], rate: Any, optimizer: Any) -> dict[str, Any]:
    stored = about["rate"]
    if rate is None and isinstance(stored, dict) and "schedule" not in stored:
        raise InvalidInput(
            f"the rate was the function {stored['unrecorded']}, which a file does not hold; give it: rate="
        )
    if rate is None:
        rate = made_rate(stored) if isinstance(stored, dict) else stored
    named = about["optimizer"]
    if optimizer is None and isinstance(named, str) and named.startswith("given as"):
        raise InvalidInput(
            "the optimizer was an object of optax, which a file does not hold; give it: optimizer= (one given by name "
            "is in the file)"
        )
    return {"rate": rate, "optimizer": named if optimizer is None else optimizer}


def _key(data: Any) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(np.array(data, dtype=np.uint32)))


def _made(about: Any, name: str, task: AbstractTask | None) -> Any:
    """A task, batch or objective, from its description: by the call that made it, or field by field."""
    if name == "task" and task is not None:
        return task
    if not isinstance(about, dict) or "class" not in about:
        raise InvalidInput(f"the file does not hold the {name}; {_ask(name)}")
    if "made_by" in about:
        return _called(about["made_by"], task)
    if about["class"] == "Ensemble":
        raise InvalidInput(f"the file does not hold each {name} of the ensemble; {_ask('objective')}")
    owner = imported_class(about, tasks, models, objectives)
    if owner is None or not dataclasses.is_dataclass(owner):
        raise InvalidInput(
            f"the {name} is of the class {about['class']} of {about.get('module', 'stepwell')}, which is not imported; "
            f"import it before, or {_ask(name)}"
        )
    lacking = [field.name for field in dataclasses.fields(owner) if not _is_held(about.get(field.name, _NONE))]
    if lacking:
        missing = f"{', '.join(lacking)} of the {about['class']} ({_why(about, lacking)})"
        raise InvalidInput(f"the file does not hold {missing}; {_ask(name)}")
    thing = object.__new__(owner)
    for field in dataclasses.fields(owner):
        object.__setattr__(thing, field.name, _field(about[field.name], field, task))
    return thing


_NONE: dict[str, Any] = {"unrecorded": ""}


def _is_held(value: Any) -> bool:
    return not isinstance(value, dict) or ("unrecorded" not in value and ("sha256" not in value or "zlib" in value))


def _why(about: dict[str, Any], lacking: list[str]) -> str:
    functions = [about[name]["unrecorded"] for name in lacking if "unrecorded" in about.get(name, {})]
    return f"the function {', '.join(functions)}" if functions else "arrays that no task drew"


def _ask(name: str) -> str:
    """What to do about a part that the file does not hold."""
    what = "task" if name == "task" else "objective"
    return f"give the {what} that was trained on: rerun(…, {what}=…)"


def _called(recipe: dict[str, Any], task: AbstractTask | None) -> Any:
    """What a recorded call returns."""
    call, given = recipe["call"], {key: value for key, value in recipe.items() if key != "call"}
    given |= {part: _made(given[part], part, task) for part in ("task", "batch") if part in given}
    if "key" in given:
        given["key"] = _key(given["key"])
    if call == "sample":
        return given.pop("task").sample(**given)
    if call in ("cubic_features", "full_features"):
        return getattr(_called(given.pop("of"), task), call)(**given)
    if call in ("of_batch", "of_task", "Population", "ReducedSampled", "Exact"):
        return getattr(objectives.Moments if call.startswith("of_") else objectives, call)(**given)
    raise InvalidInput(f"the file says that {call} made the objective, which is unknown; {_ask('objective')}")


def _field(value: Any, field: dataclasses.Field, task: AbstractTask | None) -> Any:
    if isinstance(value, dict) and "zlib" in value:
        array = unpacked(value)
        return array if "ndarray" in str(field.type) else jnp.asarray(array)
    if isinstance(value, dict):
        return _made(value, field.name, task)
    kind = str(field.type)
    if field.metadata.get("static", False) or value is None or kind.startswith("tuple"):
        return _tuple(value)
    if "ndarray" in kind:
        return np.asarray(value)
    return jnp.asarray(value) if isinstance(value, list) or "Array" in kind else value


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
