"""How things were made, as data: the call that made an object, its class and arrays, and schedules of optax."""

import base64
import functools
import hashlib
import inspect
import sys
import types
import zlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np

Parameters = ParamSpec("Parameters")
Made = TypeVar("Made")

_COMPARED = 16
"""Steps at which a schedule made again is compared with the given one."""


class Remembering(eqx.Module):
    """A module that may know how it was made.

    It is in a slot, outside of `__dict__`, which Equinox flattens: leaves, structure, equality and compiled programs do
    not know of it, and another module, such as `eqx.tree_at` or a copy, has none.
    """

    __slots__ = ("_recipe",)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


def remember(thing: Any, call: str, **arguments: Any) -> Any:
    """The thing, of which it is known from now on that `call` made it of these arguments."""
    object.__setattr__(thing, "_recipe", {"call": call, **arguments})  # modules are frozen
    return thing


def recipe_of(thing: Any) -> dict[str, Any] | None:
    """The call that made it and its arguments, or None."""
    return getattr(thing, "_recipe", None)


def remembered(method: Callable[Parameters, Made]) -> Callable[Parameters, Made]:
    """A function, class method or method that makes a model: what it returns is remembered, with all arguments.

    For a method `of` is how the object itself was made; where this is not known, nothing is remembered.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def wrapper(*given: Parameters.args, **named: Parameters.kwargs) -> Made:
        made = method(*given, **named)
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        arguments: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            is_options = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            arguments |= value if is_options else {name: value}
        arguments.pop("cls", None)
        if "self" in arguments:
            arguments["of"] = recipe_of(arguments.pop("self"))
            if arguments["of"] is None:
                return made
        return remember(made, method.__name__, **arguments)

    return wrapper


def digest(array: np.ndarray) -> dict[str, Any]:
    """Shape, type and hash of an array."""
    content = np.ascontiguousarray(array).tobytes()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": hashlib.sha256(content).hexdigest()[:16]}


def packed(array: np.ndarray) -> dict[str, Any]:
    """These, and the array itself, compressed."""
    content = zlib.compress(np.ascontiguousarray(array).tobytes())
    return {**digest(array), "zlib": base64.b64encode(content).decode()}


def unpacked(described: dict[str, Any]) -> np.ndarray:
    """The array that `packed` described."""
    content = zlib.decompress(base64.b64decode(described["zlib"]))
    return np.frombuffer(content, described["dtype"]).reshape(described["shape"]).copy()


def imported_class(described: dict[str, Any], *rooms: types.ModuleType) -> type | None:
    """The class that a description names, if one of these rooms has it or its module is imported already; or None.

    Nothing is imported: which code runs is not for a file to say.
    """
    name, module = described.get("class"), described.get("module")
    places = rooms if module is None else [sys.modules.get(module)]
    owners = [getattr(place, str(name), None) for place in places]
    return next((owner for owner in owners if isinstance(owner, type)), None)


class _NotPlain(Exception):
    """A variable of a schedule is more than numbers."""


def recorded_rate(rate: Any, steps: int) -> Any:
    """A rate for the provenance of a run: numbers as they are, a schedule of optax as a name and its parameters.

    optax's schedules are closures over the arguments of the function that made them. What is made of these again is
    compared with the given schedule; one that is not equal, or any other function, is returned as it is.
    """
    if not callable(rate):
        return rate
    points = np.unique(np.linspace(0, steps, _COMPARED).astype(int))
    try:
        recorded = _recorded(rate)
        given, made = (np.asarray(jax.vmap(each)(points)) for each in (rate, made_rate(recorded)))
    except Exception:  # it is no schedule of optax; or whatever optax says about arguments that are not its function's
        return rate
    return recorded if np.array_equal(given, made) else rate


def made_rate(recorded: dict[str, Any]) -> Callable[[Any], Any]:
    """The schedule of optax that `recorded_rate` described."""
    given = {name: _given(value) for name, value in recorded["parameters"].items()}
    return _maker(recorded["schedule"])(**given)


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(one) for one in value]
    if isinstance(value, dict):
        return made_rate(value) if "schedule" in value else dict(value["pairs"])
    return value


def _maker(name: str) -> Callable[..., Any]:
    """optax's function of this name, if it makes schedules."""
    import optax

    if not name.endswith(("_schedule", "_schedules", "_decay")):
        raise _NotPlain
    return getattr(optax, name)


def _recorded(schedule: Any) -> dict[str, Any]:
    maker = _maker(schedule.__qualname__.partition(".<locals>")[0])
    if schedule.__module__ != maker.__module__:
        raise _NotPlain
    wanted = inspect.signature(maker).parameters
    cells = zip(schedule.__code__.co_freevars, schedule.__closure__, strict=True)
    parameters = {variable: _plain(cell.cell_contents) for variable, cell in cells if variable in wanted}
    return {"schedule": maker.__name__, "parameters": parameters}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {"pairs": [[_plain(name), _plain(one)] for name, one in value.items()]}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _recorded(value)
