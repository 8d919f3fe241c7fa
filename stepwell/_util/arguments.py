"""The arguments of public functions, checked by their annotations: `@checked`.

The kind of an argument is checked when a public function is called: an integer, one of several names, an array with so
many axes, a model. Whether a number is in range is checked by the function itself, with `checks`. Arrays may be given
as lists, as arrays of NumPy or of JAX, and of integers; the function gets what its annotation says.
"""

import collections.abc
import contextlib
import functools
import inspect
import numbers
import os
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union

import numpy as np
from jaxtyping import AbstractArray

from .checks import LARGEST_WHOLE
from .errors import InvalidInput
from .text import listed, shown

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class _Refused(Exception):
    """A value is not of the kind that is asked for."""


class _Kind(NamedTuple):
    """What an annotation asks for."""

    words: str
    """For "it must be …"."""
    several: str
    """For "a list of …"."""
    take: Callable[[Any], Any]
    """From a value to what the function gets; raises `_Refused`."""
    shapes: tuple[tuple[str, ...], ...] = ()
    """The names of the axes, where it may be an array, in each way that it may be one."""
    asked: Any = None
    """The protocol, where it is one."""


_AXES: dict[type, Callable[[Any], dict[str, int]]] = {}
"""Sizes of axes that an object has, by its protocol: arrays beside it must have them too."""


def with_axes(protocol: type, sizes: Callable[[Any], dict[str, int]]) -> None:
    """Let arrays beside an argument of this protocol be checked against the sizes of axes that are read off it."""
    _AXES[protocol] = sizes


_Sizes = dict[str, tuple[int | tuple[int, ...], str]]
"""Sizes of axes by name, and the argument that each was first seen in."""


def checked(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """The function, with `InvalidInput` where an argument is not of the kind that its annotation asks for."""

    @functools.cache
    def arguments() -> tuple[list[str], dict[str, _Kind]]:
        return _arguments(function)

    @functools.wraps(function)
    def wrapper(*given: Any, **named: Any) -> Any:
        by_place, by_name = arguments()
        sizes: _Sizes = {}
        taken = [_taken(name, value, by_name[name], sizes) for name, value in zip(by_place, given, strict=False)]
        for name, value in named.items():
            if name in by_name:
                named[name] = _taken(name, value, by_name[name], sizes)
        return function(*taken, *given[len(taken) :], **named)  # pyright: ignore

    return wrapper  # pyright: ignore


def check_fields(thing: Any) -> None:
    """Check the fields of a data class that has no `__init__` of its own; to be called by its `__check_init__`."""
    sizes: _Sizes = {}
    for name, kind in _fields(type(thing)).items():
        value = getattr(thing, name)
        taken = _taken(name, value, kind, sizes)
        if taken is not value:
            object.__setattr__(thing, name, taken)


def _arguments(function: Callable) -> tuple[list[str], dict[str, _Kind]]:
    """The arguments that may be given by place, and all by name; `**options` by the names of their `TypedDict`."""
    by_place: list[str] = []
    by_name: dict[str, _Kind] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            if typing.get_origin(parameter.annotation) is typing.Unpack:
                options = typing.get_type_hints(typing.get_args(parameter.annotation)[0])
                by_name.update({name: _kind(hint) for name, hint in options.items()})
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            by_name[parameter.name] = _kind(parameter.annotation)
            if parameter.kind is not parameter.KEYWORD_ONLY:
                by_place.append(parameter.name)
    return by_place, by_name


@functools.cache
def _fields(owner: type) -> dict[str, _Kind]:
    hints = inspect.get_annotations(owner)
    return {name: _kind(hint) for name, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar}


def _taken(name: str, value: Any, kind: _Kind, sizes: _Sizes) -> Any:
    """What the function gets for a value. `sizes` are those of all axes named so far."""
    try:
        taken = kind.take(value)
    except _Refused:
        raise InvalidInput(f"{name} is {shown(value)}; it must be {kind.words}") from None
    if kind.shapes and _is_array(taken):
        axes = next((axes for axes in kind.shapes if _has_room(axes, taken.ndim)), None)
        if axes is None:
            given = f"has shape {taken.shape}" if taken.ndim > 0 else f"is {shown(value)}"
            raise InvalidInput(f"{name} {given}; it must be {kind.words}")
        for axis, size in _pairs(axes, taken.shape):
            if axis.isdigit() and int(axis) != size:
                raise InvalidInput(f"{name} has shape {taken.shape}; it must be {kind.words}")
            known, other = sizes.setdefault(axis, (size, name)) if axis.strip("*_").isidentifier() else (size, name)
            if known != size:
                raise InvalidInput(
                    f"{name} has shape {taken.shape}, read as ({', '.join(axes)}), but {axis} is {known} in {other}; "
                    "they must agree"
                )
    if kind.asked in _AXES:
        with contextlib.suppress(AttributeError, TypeError):  # whoever reads them can say more about what is missing
            sizes.update({axis: (size, name) for axis, size in _AXES[kind.asked](taken).items()})
    return taken


def _has_room(axes: tuple[str, ...], ndim: int) -> bool:
    return len(axes) == ndim or (any(axis.startswith("*") for axis in axes) and len(axes) - 1 <= ndim)


def _pairs(axes: tuple[str, ...], shape: tuple[int, ...]) -> list[tuple[str, Any]]:
    """The names of axes with their sizes, `*lead` with those of all that it stands for. Numbers name themselves."""
    several = next((place for place, axis in enumerate(axes) if axis.startswith("*")), len(axes))
    end = len(shape) - len(axes[several + 1 :])
    lead = [(axis, shape[several:end]) for axis in axes[several : several + 1] if axis != "*"]
    before, after = axes[:several], axes[several + 1 :]
    return [*zip(before, shape[:several], strict=True), *lead, *zip(after, shape[end:], strict=True)]


@functools.cache
def _kind(hint: Any) -> _Kind:
    """What an annotation asks for. What is not understood is not checked."""
    if isinstance(hint, TypeVar):
        return _kind(hint.__bound__ if isinstance(hint.__bound__, type) else Any)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return _array_kind(hint)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _any_of([_kind(one) for one in inner])
    if origin is Literal:
        words = listed([repr(one) for one in inner])
        return _Kind(words, words, _if(lambda value: any(type(value) is type(one) and value == one for one in inner)))
    if origin is collections.abc.Callable:
        return _kind(Callable)
    if origin is dict:
        return _Kind("a dictionary", "dictionaries", functools.partial(_take_dictionary, *map(_kind, inner)))
    if origin in (list, tuple, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable):
        element = _kind(inner[0]) if inner else _kind(Any)
        several = f"lists of {element.several}"
        return _Kind(f"a list of {element.several}", several, functools.partial(_take_list, origin, element))
    asked: Any = origin if isinstance(origin, type) else hint
    if not isinstance(asked, type):
        return _kind(Any)
    words, several = _class_words(asked)
    if not getattr(asked, "_is_protocol", False):
        return _Kind(words, several, _if(lambda value: isinstance(value, asked)))
    # What has some of the attributes is taken: whoever reads them can say which are missing, and why they matter.
    attributes = [name for name in vars(asked) if not name.startswith("_")]
    return _Kind(words, several, _if(lambda value: any(hasattr(value, name) for name in attributes)), asked=asked)


def _if(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if not test(value):
            raise _Refused
        return value

    return take


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and abs(int(value)) <= LARGEST_WHOLE


def _take_number(value: Any) -> Any:
    """A number, or an array without axes, which JAX may be tracing. What 64 bits cannot hold becomes a float."""
    if _is_array(value):
        if value.ndim > 0 or _element(value) == "other":
            raise _Refused
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _Refused
    if not isinstance(value, int) or _is_whole(value):
        return value
    try:
        return float(value)
    except OverflowError:
        raise _Refused from None


_ANYTHING = _Kind("anything", "anything", lambda value: value)
_SIMPLE: dict[Any, _Kind] = {
    Any: _ANYTHING,
    inspect.Parameter.empty: _ANYTHING,
    type(None): _Kind("None", "None", _if(lambda value: value is None)),
    int: _Kind("an integer below 2**63", "integers below 2**63", _if(_is_whole)),
    float: _Kind("a number", "numbers", _take_number),
    bool: _Kind("True or False", "True or False", _if(lambda value: isinstance(value, bool | np.bool_))),
    str: _Kind("a string", "strings", _if(lambda value: isinstance(value, str))),
    np.ndarray: _Kind("an array of numbers", "arrays of numbers", _if(lambda value: isinstance(value, np.ndarray))),
    os.PathLike: _Kind("a path", "paths", _if(lambda value: isinstance(value, os.PathLike))),
    Callable: _Kind("a function", "functions", _if(callable)),
}


def _any_of(kinds: list[_Kind]) -> _Kind:
    def take(value: Any) -> Any:
        """As it is, if it may be; else in the first way in which it can be converted."""
        converted = []
        for kind in kinds:
            with contextlib.suppress(_Refused):
                converted.append(kind.take(value))
                if converted[-1] is value:
                    return value
        if not converted:
            raise _Refused
        return converted[0]

    words = list(dict.fromkeys(kind.words for kind in kinds))
    shapes = tuple(axes for kind in kinds for axes in kind.shapes)
    return _Kind(listed(words), listed([kind.several for kind in kinds]), take, shapes)


def _take_dictionary(keys: _Kind, values: _Kind, value: Any) -> Any:
    if not isinstance(value, dict):
        raise _Refused
    return {keys.take(key): values.take(one) for key, one in value.items()}


def _take_list(origin: Any, element: _Kind, value: Any) -> Any:
    """Entries are checked where reading them does not use them up. Text is no list of its letters."""
    wanted = collections.abc.Sequence if origin in (list, tuple) else origin
    if _is_array(value):
        if value.ndim != 1:
            raise _Refused
    elif isinstance(value, str | bytes | dict) or not isinstance(value, wanted):
        raise _Refused
    entries: Any = value.tolist() if _is_array(value) else value
    if isinstance(entries, list | tuple | set | frozenset):
        for one in entries:
            element.take(one)
    return value if isinstance(value, np.ndarray) else entries  # those of an array of JAX cannot be hashed


def _array_kind(hint: Any) -> _Kind:
    axes = tuple("*" if axis == "..." else axis for axis in hint.dim_str.split())
    types_of_elements = hint.dtypes if isinstance(hint.dtypes, tuple | list) else ("any",)
    element = _element_of(types_of_elements[-1])
    if "prng_key" in types_of_elements or "uint32" in types_of_elements:  # keys of the new kind and the old
        words = "a random key, such as jax.random.key(0)"
        return _Kind(words, "random keys", _if(lambda value: isinstance(value, hint)))
    one, several = ("an integer", "integers") if element == "int" else ("a number", "numbers")
    words = f"an array of {several}, ({', '.join(axes)})" if axes else one
    return _Kind(words, f"arrays of {several}", functools.partial(_take_array, hint.array_type, element), (axes,))


def _take_array(array_type: Any, element: str, value: Any) -> Any:
    """An array of the library and the kind of numbers that are asked for, converted where nothing is lost."""
    if isinstance(value, array_type) and element in (_element(value), "other"):
        return value
    try:
        array = np.asarray(value)
    except Exception:  # a list of lists of different lengths, or whatever an object does
        raise _Refused from None
    given = _element(array)
    if given == "other" or (element == "int" and given == "float"):
        raise _Refused
    if element == "float" and given == "int":
        array = array.astype(np.float64)
    return array if isinstance(array, array_type) else sys.modules["jax"].device_put(array)


def _element(array: Any) -> str:
    return _element_of(str(array.dtype))


def _element_of(name: str) -> str:
    """Whether the name of a type, such as bfloat16 or uint8, is that of a "float", an "int" or something "other"."""
    return next((kind for kind in ("float", "int") if re.match(f"(b|u)?{kind}\\d", name)), "other")


def _is_array(value: Any) -> bool:
    jax: Any = sys.modules.get("jax")  # who has an array of JAX has imported it
    return isinstance(value, np.ndarray) or (jax is not None and isinstance(value, jax.Array))


def _class_words(asked: type) -> tuple[str, str]:
    """A class in words, one and several: "a model of stepwell.models", "models of stepwell.models"."""
    name, module = asked.__name__, asked.__module__
    parts = [part for part in module.split(".") if not part.startswith("_")]
    place = ".".join(parts[:2] if parts[0] == "stepwell" else parts[:1])
    if name.startswith("Abstract"):
        name = re.sub("(?<!^)([A-Z])", r" \1", name.removeprefix("Abstract")).lower()
    of = "" if place == "builtins" else f" of {place}"
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}{of}", f"{name}s{of}"
