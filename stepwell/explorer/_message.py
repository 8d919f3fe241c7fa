"""A message to the page, as one piece: the length of a head, the head as JSON, and arrays.

    bytes 0–3     length n of the head, little endian
    bytes 4–3+n   the head, filled up with spaces so that n + 4 is a multiple of 8
    then          the arrays, each from a multiple of 8 on

The head has what the message has, and `arrays`: for each its kind (`f4` or `f8`), shape and place, in bytes.
"""

import json
import math
import struct
from typing import Any

import numpy as np

Message = dict[str, Any]
"""What is sent to the page; `view`, if there is one, has arrays among its values."""


def packed(message: Message) -> bytes:
    """A message as bytes. Curves keep float64; weights, which are shown as colors, go as float32."""
    head = {name: value for name, value in message.items() if name != "view"}
    pieces: list[bytes] = []
    if "view" in message:
        view, arrays, place = message["view"], {}, 0
        for name, value in view.items():
            if isinstance(value, np.ndarray):
                kind = "f4" if value.ndim > 2 else "f8"
                content = np.ascontiguousarray(value, f"<{kind}").tobytes()
                content += bytes(-len(content) % 8)
                arrays[name] = [kind, list(value.shape), place]
                place += len(content)
                pieces.append(content)
        head["view"] = {name: value for name, value in view.items() if name not in arrays}
        head["arrays"] = arrays
    text = json.dumps(_plain(head), allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join([struct.pack("<I", len(text)), text, *pieces])


def _plain(value: Any) -> Any:
    """For JSON: numbers that are none become null."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
