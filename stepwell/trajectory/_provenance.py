"""How a trajectory came about, in words that a file can hold."""

import dataclasses
import hashlib
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from stepwell._arguments import checked
from stepwell._recipes import recipe_of
from stepwell._versions import versions
from stepwell.models import AbstractModel
from stepwell.tasks import AbstractTask

_WRITTEN_OUT = 1024
"""Arrays of up to this many entries are written out in a description; of larger ones the shape is."""


def describe(thing: Any) -> Any:
    """A JSON-ready description of a task, model, objective or plain value.

    **Arguments:**

    - `thing`: what to describe. Of the weights of a model, and of other arrays with more than 1024 entries, shape, type
      and a hash are described: the weights themselves are in the trajectory. Functions, and objects of other classes,
      become names.

    **Returns:** dictionaries, lists, strings and numbers; an object has an entry `class` and one for each field; or,
    where it is known which call made it, such as `task.sample`, an entry `made_by` in place of its arrays.

    **Example:**

    >>> import stepwell as sw
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
                made[field.name] = _digest(np.asarray(value))
            elif recipe is not None and not field.metadata.get("static", False):
                continue  # it will be made again
            elif not field.name.startswith("_") or isinstance(thing, AbstractTask):
                # Of a task what it has computed is kept too: from its matrices other digits might come.
                made[field.name] = describe(value)
        return made if recipe is None else made | {"made_by": describe(recipe)}
    if isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
        thing = jax.random.key_data(thing)
    if isinstance(thing, jax.Array | np.ndarray | np.generic):
        array = np.asarray(thing)
        if array.size <= _WRITTEN_OUT:
            return array.tolist()
        return _digest(array)
    if isinstance(thing, dict):
        return {str(name): describe(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [describe(value) for value in thing]
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    return getattr(thing, "__qualname__", type(thing).__name__)


def _digest(array: np.ndarray) -> dict[str, Any]:
    """Shape, type and hash of an array."""
    content = np.ascontiguousarray(array).tobytes()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": hashlib.sha256(content).hexdigest()[:16]}


@checked
def provenance(configuration: dict[str, Any]) -> dict[str, str]:
    """Attributes that tell how a trajectory was made.

    **Arguments:**

    - `configuration`: tasks, models, settings and whatever else made the run, by name; see `describe`.

    **Returns:** `configuration` and `versions` (of Stepwell and the libraries it computes with), each a JSON text.

    **Example:**

    >>> import stepwell as sw
    >>> sw.trajectory.provenance({"rate": 0.01, "lengths": sw.tasks.ContextLengths(5)})["configuration"]
    '{"rate": 0.01, "lengths": {"class": "ContextLengths", "counts": [5], "probabilities": [1.0]}}'
    """
    return {"configuration": json.dumps(describe(configuration)), "versions": json.dumps(versions())}
