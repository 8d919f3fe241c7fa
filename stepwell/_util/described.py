"""From the description of an object in a file back to it: its class and its arrays."""

import base64
import hashlib
import sys
import types
import zlib
from typing import Any

import numpy as np


def digest(array: np.ndarray) -> dict[str, Any]:
    """Shape, type and hash of an array."""
    content = np.ascontiguousarray(array).tobytes()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": hashlib.sha256(content).hexdigest()[:16]}


def packed(array: np.ndarray) -> dict[str, Any]:
    """These, and the array itself, compressed."""
    content = zlib.compress(np.ascontiguousarray(array).tobytes())
    return {**digest(array), "zlib": base64.b64encode(content).decode()}


def unpacked(described: dict[str, Any]) -> np.ndarray:
    """The array that `packed` described."""
    content = zlib.decompress(base64.b64decode(described["zlib"]))
    return np.frombuffer(content, described["dtype"]).reshape(described["shape"]).copy()


def imported_class(described: dict[str, Any], *rooms: types.ModuleType) -> type | None:
    """The class that a description names, if one of these rooms has it or its module is imported already; or None.

    Nothing is imported: which code runs is not for a file to say.
    """
    name, module = described.get("class"), described.get("module")
    places = rooms if module is None else [sys.modules.get(module)]
    owners = [getattr(place, str(name), None) for place in places]
    return next((owner for owner in owners if isinstance(owner, type)), None)
