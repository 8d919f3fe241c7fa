"""Schedules of optax as data: the function that made one, and its numbers."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

_COMPARED = 16
"""Steps at which a schedule made again is compared with the given one."""


class _NotPlain(Exception):
    """A variable of a schedule is more than numbers."""


def recorded_rate(rate: Any, steps: int) -> Any:
    """A rate for the provenance of a run: numbers as they are, a schedule of optax as a name and its parameters.

    optax's schedules are closures: their variables are the arguments of the function that made them. What is made of
    these again is compared with the given schedule; one that is not equal, or any other function, is returned as it is.
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
