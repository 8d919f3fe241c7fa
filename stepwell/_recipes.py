"""How something was made: what it can be made of again, in place of all its numbers, or beside a hash of them."""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Made = TypeVar("Made")

_RECIPES: dict[int, tuple[Any, dict[str, Any]]] = {}
"""By the identity of the thing: a weak reference to it, and the arguments of the call that made it.

Modules are frozen, and another one, such as `eqx.tree_at` makes, has no recipe. Nothing is added to the module itself:
its leaves, its equality and the programs compiled for it stay as they are.
"""


def remember(thing: Any, call: str, **arguments: Any) -> Any:
    """The thing, of which it is known from now on that `call` made it of these arguments."""
    name = id(thing)
    _RECIPES[name] = weakref.ref(thing, lambda _: _RECIPES.pop(name, None)), {"call": call, **arguments}
    return thing


def recipe_of(thing: Any) -> dict[str, Any] | None:
    """The call that made it and its arguments, or None."""
    reference, recipe = _RECIPES.get(id(thing), (None, None))
    return recipe if reference is not None and reference() is thing else None


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
