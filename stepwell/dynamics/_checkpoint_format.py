r"""Checkpoints as files: arrays and plain values, and nothing that could be run when it is read.

A file is 16 bytes that name the format and its version, the digest of the run it belongs to, the SHA-256 of that and of
the rest, and the rest: 8 bytes with the length of a text; that text, MessagePack, in which arrays are extensions (type,
shape, place); and the bytes of all arrays.
"""

import hashlib
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import msgspec
import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory

_MAGIC = b"stepwell-check3\n"
_DIGEST = hashlib.sha256().digest_size
_LENGTH = struct.Struct("<Q")
_ARRAY = 1
"""The code of the extension."""


class Contents(NamedTuple):
    """The digest of the run that a file belongs to, plain values that describe it, and its state: dictionaries with
    texts for keys and lists, of arrays, numbers, texts and None."""

    run: bytes
    about: Any
    state: Any


def pack(contents: Contents) -> bytes:
    """The file as bytes. It is refused with `WouldNotFit` if there is no memory for it."""
    arrays: list[np.ndarray] = []
    places = [0]

    def encoded(value: Any) -> msgspec.msgpack.Ext:
        array = np.asarray(value)
        raw = array.astype(jnp.dtype(array.dtype.name), copy=False)  # in the order of bytes of this machine
        arrays.append(np.ascontiguousarray(raw).reshape(-1).view(np.uint8))
        places.append(places[-1] + raw.nbytes)
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode([array.dtype.name, array.shape, places[-2]]))

    text = msgspec.msgpack.encode([contents.about, contents.state], enc_hook=encoded)
    require_memory(places[-1], what="a checkpoint", instead="record fewer steps, or save fewer times")
    body = [_LENGTH.pack(len(text)), text, *arrays]
    return b"".join([_MAGIC, contents.run, _checksum(contents.run, *body), *body])


def owner(path: str | os.PathLike) -> bytes | None:
    """The digest of the run that a checkpoint belongs to, read alone; None if the file is no checkpoint."""
    with open(path, "rb") as file:
        start = file.read(len(_MAGIC) + _DIGEST)
    return start[len(_MAGIC) :] if start.startswith(_MAGIC) and len(start) == len(_MAGIC) + _DIGEST else None


def unpack(path: str | os.PathLike) -> Contents:
    """Read a file, after its checksum was verified."""
    try:
        run = owner(path) if Path(path).is_file() else None
        if run is None:
            _refuse(path, "is not a checkpoint of this version")
        require_memory(2 * os.path.getsize(path), what=f"the checkpoint {path}", instead="free some memory")
        rest = memoryview(Path(path).read_bytes())[len(_MAGIC) + _DIGEST :]
    except OSError as error:
        _refuse(path, f"cannot be read ({error.strerror or error})")
    expected, body = rest[:_DIGEST], rest[_DIGEST:]
    if _checksum(run, body) != expected:
        _refuse(path, "is damaged: its checksum does not fit")
    try:
        (length,) = _LENGTH.unpack_from(body)
        arrays = body[_LENGTH.size + length :]

        def decoded(code: int, data: memoryview) -> np.ndarray:
            name, shape, place = msgspec.msgpack.decode(data)
            if jnp.dtype(name).hasobject:
                raise ValueError(name)
            return np.ndarray(shape, jnp.dtype(name), arrays, place).copy()

        about, state = msgspec.msgpack.decode(body[_LENGTH.size : _LENGTH.size + length], ext_hook=decoded)
        return Contents(run, dict(about), state)
    except (ValueError, TypeError, RecursionError, struct.error):
        _refuse(path, "does not hold what a checkpoint should")


def _refuse(path: str | os.PathLike, reason: str) -> NoReturn:
    raise InvalidInput(f"{path} {reason}; give another path for the checkpoint, or remove the file") from None


def _checksum(*parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
