"""How something was made: what it can be made of again, in place of all its numbers, or beside a hash of them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx

Parameters = ParamSpec("Parameters")
Made = TypeVar("Made")


class Remembering(eqx.Module):
    """A module that may know how it was made.

    It is in a slot, beside the fields and outside of `__dict__`, which Equinox flattens: leaves, structure, equality
    and compiled programs do not know of it, and another module, such as `eqx.tree_at` or a copy, has none.
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
