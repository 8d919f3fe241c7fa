"""A digest of what determines a run: the same in every process that builds the same things."""

import dataclasses
import enum
import functools
import hashlib
import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def fingerprint(thing: Any) -> str:
    """The SHA-256 of a number, an array, a model, a task, an objective, an optimizer or a container of them.

    Arrays count with every entry, modules and other dataclasses with their class and all fields. A function counts with
    its code, its defaults and the values it closes over, below decorators that keep `__wrapped__`; what it reads from
    its module does not count. Of other objects what `pickle` would keep counts, or the class if
    it can keep nothing.
    """
    digest = hashlib.sha256()
    for piece in _pieces(thing, ()):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(thing: Any, within: tuple[int, ...]) -> Iterator[bytes]:
    """The thing as bytes, with their lengths before them, so that no two different things have the same."""
    kind, content, parts = ("itself", b"", ()) if id(thing) in within else _taken_apart(thing)
    yield f"{len(kind.encode())}:{len(content)}:{len(parts)};{kind}".encode()
    yield content
    for part in parts:
        yield from _pieces(part, (*within, id(thing)))


def _taken_apart(thing: Any) -> tuple[str, bytes, Sequence[Any]]:
    """What kind of thing it is, its content as bytes, and what else it consists of."""
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes | enum.Enum | np.dtype):
        return f"value {type(thing).__name__}", repr(thing).encode(), ()
    if isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
        return f"key {jax.random.key_impl(thing)}", b"", (np.asarray(jax.random.key_data(thing)),)
    if isinstance(thing, jax.Array | np.ndarray | np.generic):
        array = np.asarray(thing)
        kind = f"array {array.dtype.name} {array.shape}"
        return (kind, b"", array.ravel().tolist()) if array.dtype.hasobject else (kind, array.tobytes(), ())
    if isinstance(thing, dict):
        return "dict", b"", [part for name in sorted(thing, key=fingerprint) for part in (name, thing[name])]
    if isinstance(thing, set | frozenset):
        return "set", b"", sorted(thing, key=fingerprint)
    if isinstance(thing, list | tuple):
        return f"sequence {_name(type(thing))}", b"", thing
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = [(field.name, getattr(thing, field.name, None)) for field in dataclasses.fields(thing)]
        return f"object {_name(type(thing))}", b"", fields
    return _callable_taken_apart(thing)


def _callable_taken_apart(thing: Any) -> tuple[str, bytes, Sequence[Any]]:
    if isinstance(thing, types.CodeType):
        return "code", thing.co_code, (thing.co_names, thing.co_consts)
    if isinstance(thing, types.MethodType):
        return "method", b"", (thing.__func__, thing.__self__)
    if isinstance(thing, functools.partial):
        return "partial", b"", (thing.func, thing.args, thing.keywords)
    inner = inspect.unwrap(thing) if callable(thing) and not isinstance(thing, type) else thing
    if isinstance(inner, types.FunctionType):
        held = [cell.cell_contents for cell in inner.__closure__ or () if _filled(cell)]
        return f"function {_name(inner)}", b"", (inner.__code__, inner.__defaults__, inner.__kwdefaults__, held)
    return f"other {_name(type(thing))}", _name(thing).encode(), _reduced(thing)


def _reduced(thing: Any) -> Sequence[Any]:
    """What an object is made anew of, by the protocol of `pickle`."""
    if isinstance(thing, type):
        return ()
    try:
        reduced = thing.__reduce_ex__(2)
    except Exception:  # such as "cannot pickle module"
        return ()
    if isinstance(reduced, str):
        return (reduced,)
    return [*reduced[:3], *(list(part) for part in reduced[3:5] if part is not None)]


def _name(thing: Any) -> str:
    """The name under which its module has a class or function, or that of the class of anything else."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def _filled(cell: types.CellType) -> bool:
    """Whether a variable that a function closes over has a value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
