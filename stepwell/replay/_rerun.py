"""A run made again from what its trajectory says."""

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
from stepwell._arguments import checked
from stepwell._errors import InvalidInput
from stepwell.dynamics import Ensemble, descend, flow, online
from stepwell.published import Published
from stepwell.trajectory import load, model_at


@checked
def rerun(
    run: str | os.PathLike | xr.Dataset,
    *,
    objective: objectives.AbstractObjective | Ensemble | None = None,
    optimiser: Any = None,
    rate: Any = None,
    observe: dict[str, Callable] | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Make a run again, from its first recorded weights and its provenance: on the same machine, bit for bit.

    **Arguments:**

    - `run`: the trajectory, or the netCDF file that `save` or `stepwell train` wrote.
    - `objective`: the loss, where the file does not hold all of it: samples that were not drawn by `task.sample` or
      `Moments.of_task`, arrays of more than 1024 entries, classes of your own.
    - `optimiser`: the optimiser, where it was given as an object of optax.
    - `rate`: the rate, where it was a schedule.
    - `observe`: observed curves, whose functions no file holds; by default they are left out. (Runs of `stepwell train`
      have theirs.)
    - `progress`: whether to show a progress bar.

    **Returns:** the new trajectory.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.InContextRegression(sw.covariance([1.0, 0.5]), 31)
    >>> model = sw.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> run = sw.descend(model, sw.Population(task), rate=0.05, steps=60, progress=False)
    >>> again = sw.rerun(sw.save(run, "run.nc"), progress=False)
    >>> again.identical(run)
    True
    """
    stored = run if isinstance(run, xr.Dataset) else load(run)
    try:
        about = json.loads(stored.attrs["configuration"])
        dynamics = about["dynamics"]
    except (KeyError, ValueError, TypeError):
        raise InvalidInput("the trajectory does not say how it was made; give one of descend, online or flow") from None
    if "flags" in about:
        return _of_flags(about["flags"])
    model: Any = model_at(stored, index=0)
    if about["model"].get("class") == "Ensemble":
        model = Ensemble.of([model_at(stored, run=number, index=0) for number in range(stored.sizes["run"])])
    reserved = _KEPT[dynamics] if dynamics in _KEPT else ()
    extra = {name: value for name, value in about.items() if name not in reserved}
    common: dict[str, Any] = {"observe": observe, "progress": progress, "configuration": extra or None}
    if dynamics == "flow":
        loss = _made(about["objective"], "objective") if objective is None else objective
        save = about["save"] if isinstance(about["save"], int) else stored["time"].values
        given = {name: about[name] for name in ("until", "spacing", "solver", "rtol", "atol", "gap")}
        return flow(model, loss, save=save, **given, **common)
    options = common | {name: about[name] for name in ("steps", "start", "record", "snapshots")}
    options |= _rule(about, rate, optimiser)
    if dynamics == "online":
        task, key = _made(about["task"], "task"), _key(about["key"])
        return online(model, task, batch=about["batch"], reduce=about["reduce"], key=key, **options)
    loss = _made(about["objective"], "objective") if objective is None else objective
    return descend(model, loss, **options)


_TRAINED = ("dynamics", "model", "rate", "optimiser", "steps", "start", "record", "snapshots", "observed")
_KEPT = {
    "flow": ("dynamics", "model", "objective", "until", "solver", "rtol", "atol", "save", "spacing", "gap", "observed",
             "work"),
    "descend": (*_TRAINED, "objective"),
    "online": (*_TRAINED, "task", "batch", "reduce", "key"),
}  # fmt: skip
"""What the dynamics write into the provenance themselves; the rest was given as `configuration`."""


def _of_flags(flags: dict[str, Any]) -> xr.Dataset:
    """A run of `stepwell train`."""
    from stepwell.published import training

    names = {field.name for field in dataclasses.fields(Published)}
    if set(flags) - {"engine"} != names:
        different = ", ".join(sorted((set(flags) - {"engine"}) ^ names))
        raise InvalidInput(f"the file was written by another version of stepwell train (flags {different})")
    given = Published(**{name: value for name, value in flags.items() if name in names})
    return training.train(training.set_up(given, flags["engine"]), None)


def _rule(about: dict[str, Any], rate: Any, optimiser: Any) -> dict[str, Any]:
    rate = about["rate"] if rate is None else rate
    if isinstance(rate, str):
        raise InvalidInput(f"the rate was the schedule {rate}, which a file does not hold; give it as rate=")
    named = about["optimiser"]
    if optimiser is None and isinstance(named, str) and named.startswith("given as"):
        raise InvalidInput("the optimiser was an object of optax, which a file does not hold; give it as optimiser=")
    return {"rate": rate, "optimiser": named if optimiser is None else optimiser}


def _key(data: Any) -> Any:
    return jax.random.wrap_key_data(jnp.asarray(np.array(data, dtype=np.uint32)))


def _made(about: Any, name: str) -> Any:
    """A task, batch or objective, from its description: by the call that made it, or field by field."""
    if not isinstance(about, dict) or "class" not in about:
        raise InvalidInput(f"the file does not hold the {name}; give it to rerun")
    recipe = about.get("made_by")
    if recipe is not None:
        call, given = recipe["call"], {key: value for key, value in recipe.items() if key != "call"}
        given |= {part: _made(given[part], part) for part in ("task", "batch") if part in given}
        if "key" in given:
            given["key"] = _key(given["key"])
        if call == "sample":
            return given.pop("task").sample(**given)
        if call == "Population":
            return objectives.Population(**given)
        return getattr(objectives.Moments, call)(**given)
    rooms = [room for room in (tasks, models, objectives) if hasattr(room, about["class"])]
    if "module" in about or not rooms:
        raise InvalidInput(f"the class {about['class']} of the {name} is not of this package; give the {name} to rerun")
    owner = getattr(rooms[0], about["class"])
    thing = object.__new__(owner)
    lacking = [field.name for field in dataclasses.fields(owner) if field.name not in about]
    if lacking:
        raise InvalidInput(
            f"the file does not hold {', '.join(lacking)} of the {about['class']}; give the {name} to rerun"
        )
    for field in dataclasses.fields(owner):
        object.__setattr__(thing, field.name, _field(about.get(field.name), field, owner))
    return thing


def _field(value: Any, field: dataclasses.Field, owner: type) -> Any:
    if isinstance(value, dict):
        if "sha256" in value:
            raise InvalidInput(f"the file does not hold all of {owner.__name__}.{field.name}; give the loss to rerun")
        return _made(value, field.name)
    if field.metadata.get("static", False) or value is None:
        return tuple(value) if isinstance(value, list) else value
    host = "ndarray" in str(field.type)
    return np.asarray(value) if host else jnp.asarray(value) if isinstance(value, list | float) else value
