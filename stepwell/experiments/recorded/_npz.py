"""The arrays of an .npz file, checked one by one as they are asked for."""

import json
import os
import zipfile
from typing import Any

import numpy as np
from jaxtyping import Float

from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.text import shortened


class Archive:
    """The arrays of one file, and the sizes that those read so far agree on, as in `numbers("tokens", "P S E")`."""

    def __init__(self, path: str | os.PathLike):
        self.path = path
        self._arrays = _read(path)
        self._sizes: dict[str, tuple[int, str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def names(self, prefix: str) -> list[str]:
        """The names of the arrays that begin with `prefix`."""
        return [name for name in self._arrays if name.startswith(prefix)]

    def refuse(self, problem: str) -> InvalidInput:
        """The error to raise, naming the file."""
        return InvalidInput(f"{self.path}: {problem}")

    def size(self, letter: str) -> int:
        """The size that a letter stands for."""
        return self._sizes[letter][0]

    def bind(self, letter: str, size: int, source: str) -> None:
        """Give a letter its size, or refuse a `source` that disagrees."""
        known, first = self._sizes.setdefault(letter, (size, source))
        if known != size:
            raise self.refuse(f"{source} has {letter} = {size}, but {first} has {letter} = {known}; they must agree")

    def axes(self, name: str) -> int:
        """How many axes an array has."""
        return np.ndim(self._array(name))

    def numbers(self, name: str, letters: str) -> Float[np.ndarray, "..."]:
        """An array in float64, if it is finite and its shape agrees with everything read before."""
        array = self._array(name)
        if array.dtype.kind not in "fiu":
            raise self.refuse(f"{name} has type {array.dtype}; it must be an array of real numbers")
        wanted = letters.split()
        if array.ndim != len(wanted) or array.size == 0:
            raise self.refuse(f"{name} has shape {array.shape}; it must be ({', '.join(wanted)}), and not empty")
        for letter, size in zip(wanted, array.shape, strict=True):
            self.bind(letter, size, f"{name} of shape {array.shape}, read as ({', '.join(wanted)}),")
        with np.errstate(over="ignore"):  # a number too large for float64 becomes infinite, and is refused
            values = array.astype(np.float64)
        if not np.isfinite(values).all():
            raise self.refuse(f"{name} has entries that are not finite; every entry must be a number")
        return values

    def configuration(self) -> dict[str, Any]:
        """The JSON text in `config`."""
        array = self._array("config")
        if array.dtype.kind not in "SU" or array.size != 1:
            raise self.refuse("config must be one JSON text; write config=json.dumps({...})")
        text = array.reshape(-1)[0]
        try:
            settings = json.loads(text)
        except (ValueError, RecursionError):
            raise self.refuse("config is not JSON; write config=json.dumps({...})") from None
        if not isinstance(settings, dict):
            raise self.refuse('config must be a JSON object, such as {"model": "attnM", "lr": 0.001}')
        return settings

    def _array(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            raise self.refuse(f"there is no array {name}; see docs/recordings.md for what a recording holds")
        if not isinstance(self._arrays[name], np.ndarray):
            raise self.refuse(f"{name} is not an array")
        return self._arrays[name]


def _read(path: str | os.PathLike) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise InvalidInput(
                    f"{path} is not an .npz file, or it is cut short; give a recording written by numpy.savez"
                )
    except OSError as error:
        raise InvalidInput(f"cannot read {shortened(path)} ({error.strerror or error}); check the name") from None
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        require_memory(3 * size, what=f"reading {path}", instead="record fewer sequences")
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)
    except InvalidInput:
        raise
    except Exception as error:  # whatever a damaged archive makes zipfile, zlib and numpy raise
        if "allow_pickle" in str(error):
            raise InvalidInput(
                f"{path} holds pickled objects, which are never loaded; save plain arrays only"
            ) from None
        reason = shortened(" ".join(str(error).split())) or type(error).__name__
        raise InvalidInput(f"{path} is damaged ({reason}); record it again") from None
