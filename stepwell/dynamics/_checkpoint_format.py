r"""Checkpoints as files: arrays and plain values, and nothing that could be run when it is read.

A file has, one after the other and all numbers little-endian:

- 16 bytes: `stepwell-check\r\n`
- 4 bytes: the version of the format
- 32 bytes: the digest of the run it belongs to
- 8 bytes: the length of the body
- 32 bytes: the SHA-256 of all the bytes before and of the body
- the body: 8 bytes, the length of a text; that text, JSON, which describes the rest; all arrays, C-contiguous
"""

import hashlib
import json
import math
import os
import stat
import struct
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory

_MAGIC = b"stepwell-check\r\n"
_VERSION = 1
_HEADER = struct.Struct("<16sI32sQ")
_DIGEST = hashlib.sha256().digest_size
_LENGTH = struct.Struct("<Q")


class Contents(NamedTuple):
    """What a file holds."""

    run: bytes
    """The digest of the run it belongs to."""
    about: Any
    """Plain values that describe the run."""
    state: Any
    """Dictionaries with texts for keys and lists, of arrays, numbers, texts and None."""


def pack(contents: Contents) -> bytes:
    """The file as bytes. It is refused with `WouldNotFit` if there is no memory for it."""
    arrays: list[np.ndarray] = []
    tree = _encode(contents.state, arrays)
    require_memory(
        sum(array.nbytes for array in arrays), what="a checkpoint", instead="record fewer steps, or save fewer times"
    )
    listed = [[array.dtype.name, list(array.shape)] for array in arrays]
    text = json.dumps({"about": contents.about, "state": tree, "arrays": listed}).encode()
    body = [_LENGTH.pack(len(text)), text, *map(_raw, arrays)]
    header = _HEADER.pack(_MAGIC, _VERSION, contents.run, sum(map(len, body)))
    return b"".join([header, _checksum(header, *body), *body])


def owner(path: str | os.PathLike) -> bytes | None:
    """The digest of the run that a checkpoint belongs to, read alone; None if the file is no checkpoint."""
    with open(path, "rb") as file:
        start = file.read(_HEADER.size)
    if len(start) < _HEADER.size or not start.startswith(_MAGIC):
        return None
    return _HEADER.unpack(start)[2]


def unpack(path: str | os.PathLike) -> Contents:
    """Read a file, after its size and its checksum were verified."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            start = file.read(_HEADER.size) if stat.S_ISREG(status.st_mode) else b""
            if len(start) < _HEADER.size or not start.startswith(_MAGIC):
                _refuse(path, "is not a checkpoint")
            _, version, run, length = _HEADER.unpack(start)
            if version != _VERSION:
                _refuse(path, f"has version {version} of the format of checkpoints, which is not read here")
            if status.st_size != _HEADER.size + _DIGEST + length:
                _refuse(path, f"is {status.st_size} bytes long and should be {_HEADER.size + _DIGEST + length}")
            require_memory(2 * length, what=f"the checkpoint {path}", instead="free some memory")
            expected, body = file.read(_DIGEST), file.read(length)
    except OSError as error:
        _refuse(path, f"cannot be read ({error.strerror or error})")
    if _checksum(start, body) != expected:
        _refuse(path, "is damaged: its checksum does not fit")
    try:
        about, state = _parse(body)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, struct.error):
        _refuse(path, "does not hold what a checkpoint should")
    return Contents(run, about, state)


def _refuse(path: str | os.PathLike, reason: str) -> NoReturn:
    raise InvalidInput(f"{path} {reason}; give another path for the checkpoint, or remove the file") from None


def _checksum(*parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _raw(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, without a copy where it can be."""
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).reshape(-1).view(np.uint8)


def _parse(body: bytes) -> tuple[Any, Any]:
    (length,) = _LENGTH.unpack_from(body)
    place = _LENGTH.size + length
    described = json.loads(body[_LENGTH.size : place])
    arrays = []
    for name, shape in described["arrays"]:
        dtype, size = _dtype(name), math.prod(shape)
        if any(not isinstance(side, int) or side < 0 for side in shape) or place + size * dtype.itemsize > len(body):
            raise ValueError(shape)
        stored = np.frombuffer(body, dtype.newbyteorder("<"), size, place)
        arrays.append(stored.astype(dtype).reshape(shape))
        place += stored.nbytes
    if place != len(body):
        raise ValueError(place)
    return dict(described["about"]), _decode(described["state"], arrays)


def _dtype(name: str) -> np.dtype:
    dtype = jnp.dtype(name)
    if dtype.kind != "b" and not jnp.issubdtype(dtype, np.number):
        raise ValueError(name)
    return dtype


def _encode(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": {name: _encode(each, arrays) for name, each in value.items()}}
    if isinstance(value, list | tuple):
        return {"list": [_encode(each, arrays) for each in value]}
    return {"value": value}


def _decode(tree: Any, arrays: list[np.ndarray]) -> Any:
    ((kind, held),) = tree.items()
    if kind == "array":
        return arrays[held]
    if kind == "dict":
        return {name: _decode(each, arrays) for name, each in held.items()}
    if kind == "list":
        return [_decode(each, arrays) for each in held]
    return held
