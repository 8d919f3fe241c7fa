"""How types are checked while the tests run: by beartype, with an int allowed where a float is asked for (PEP 484).

jaxtyping's import hook decorates every function and class of the package with `jaxtyping.jaxtyped`, which checks
arguments twice and opens a scope for the names of axes at each call. `watched` takes its place: arguments and result
are checked once, and only functions that have arrays in their annotations open a scope.
"""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf
from beartype import beartype as _beartype
from jaxtyping import jaxtyped
from jaxtyping._storage import pop_shape_memo, push_shape_memo

check = _beartype(conf=BeartypeConf(is_pep484_tower=True))


def watched(function: Any = None, *, typechecker: Any = None) -> Any:
    """What `jaxtyping.jaxtyped(typechecker=...)` is: a decorator of functions, methods, properties and data classes."""
    if function is None:
        return functools.partial(watched, typechecker=typechecker)
    if isinstance(function, classmethod | staticmethod):
        return type(function)(watched(function.__func__))
    if isinstance(function, property):
        return property(*(part and watched(part) for part in (function.fget, function.fset, function.fdel)))
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and not hasattr(function.__init__, "__watched__"):
            function.__init__ = watched(function.__init__)
        return function
    if inspect.isgeneratorfunction(function):  # begun only once its scope would be closed
        return jaxtyped(function, typechecker=check)
    return _watched(function)


def _watched(function: Callable) -> Callable:
    annotations = inspect.get_annotations(function)
    if not annotations:
        return function

    @functools.cache
    def prepared() -> tuple[Callable, bool]:
        """The function with its checks, and whether they need a scope: at the first call, of which most have none."""
        hints = {name: _hint(hint, function) for name, hint in annotations.items()}
        return check(_with_annotations(function, hints)), any(map(_has_axes, hints.values()))

    @functools.wraps(function)
    def wrapper(*arguments, **named):
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*arguments, **named)
        inner, scoped = prepared()
        if not scoped:
            return inner(*arguments, **named)
        push_shape_memo({})
        try:
            return inner(*arguments, **named)
        finally:
            pop_shape_memo()

    wrapper.__watched__ = True  # pyright: ignore[reportAttributeAccessIssue]
    return wrapper


def _hint(hint: Any, function: Callable) -> Any:
    """An annotation; if it is text, what that stands for, or anything where that is for type checkers only."""
    if not isinstance(hint, str):
        return hint
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"it": hint}), function.__globals__)["it"]
    except NameError:
        return Any


def _with_annotations(function: Callable, hints: dict[str, Any]) -> Callable:
    """A copy, since `checked` reads the annotations as they are written."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(copy, function)
    del copy.__wrapped__
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    return copy


def _has_axes(hint: Any) -> bool:
    """Whether an annotation names axes of arrays, or the structure of a tree."""
    if isinstance(hint, list):  # the arguments of a Callable
        return any(map(_has_axes, hint))
    return getattr(hint, "__module__", None) == "jaxtyping" or any(map(_has_axes, typing.get_args(hint)))
