"""How something large was made: what it can be made of again, in place of all its numbers."""

import weakref
from typing import Any

_RECIPES: dict[int, tuple[Any, dict[str, Any]]] = {}
"""By the identity of the thing: a weak reference to it, and the arguments of the call that made it."""


def remember(thing: Any, call: str, **arguments: Any) -> Any:
    """The thing, of which it is known from now on that `call` made it of these arguments."""
    name = id(thing)
    _RECIPES[name] = weakref.ref(thing, lambda _: _RECIPES.pop(name, None)), {"call": call, **arguments}
    return thing


def recipe_of(thing: Any) -> dict[str, Any] | None:
    """The call that made it and its arguments, or None."""
    reference, recipe = _RECIPES.get(id(thing), (None, None))
    return recipe if reference is not None and reference() is thing else None
