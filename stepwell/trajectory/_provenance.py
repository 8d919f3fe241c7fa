"""How a trajectory came about, in words that a file can hold."""

import dataclasses
import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from stepwell._util.arguments import checked
from stepwell._util.recipes import digest, packed, recipe_of
from stepwell._util.versions import versions
from stepwell.models import AbstractModel
from stepwell.tasks import AbstractTask

_WRITTEN_OUT = 1024
"""Arrays of up to this many entries are written out in a description."""
_PACKED = 2**18
"""Those of a task, of which there is nothing else to make it again, are packed up to this many entries (D = 512)."""


def describe(thing: Any) -> Any:
    """A JSON-ready description of a task, model, objective or plain value.

    **Arguments:**

    - `thing`: what to describe. Of the weights of a model, and of other arrays with more than 1024 entries, shape, type
      and a hash are described: the weights themselves are in the trajectory. The arrays of a task are kept, compressed.
      Of functions, and objects of other classes, there is a name, as `unrecorded`.

    **Returns:** dictionaries, lists, strings and numbers; an object has an entry `class` and one for each field. Where
    it is known which call made it, such as `task.sample` or `SeparateAttention.random`, an entry `made_by` has the call
    and its arguments, random keys among them: in place of its arrays, or beside the hashes of a model's weights.

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
                made[field.name] = digest(np.asarray(value))
            elif recipe is not None and not (isinstance(thing, AbstractModel) or field.metadata.get("static", False)):
                continue  # it will be made again
            elif not field.name.startswith("_") or isinstance(thing, AbstractTask):
                # Of a task what it has computed is kept too: from its matrices other digits might come.
                made[field.name] = _of_task(value) if isinstance(thing, AbstractTask) else describe(value)
        return made if recipe is None else made | {"made_by": _recipe(recipe)}
    if isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
        thing = jax.random.key_data(thing)
    if isinstance(thing, jax.Array | np.ndarray | np.generic):
        array = np.asarray(thing)
        if array.size <= _WRITTEN_OUT:
            return array.tolist()
        return digest(array)
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
