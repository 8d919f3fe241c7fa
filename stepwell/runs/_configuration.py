"""The canonical configuration of a run, and the name made of it.

A configuration is a flat dictionary from fields such as `model` or `lr` to plain values: a truth value, a whole
number, a number, a text, None, or a list of numbers. Its canonical text is JSON with sorted keys and without spaces,
and the name of the run is the beginning of the SHA-256 of that text: who asks for the same run finds it. 1, 1.0 and
True are different values here.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell._arguments import checked
from stepwell._check import LARGEST_WHOLE
from stepwell._errors import InvalidInput
from stepwell._text import shown

Value = bool | int | float | str | None | list[int | float]

DIGEST = 16
"""Bytes of a name."""
RESERVED = frozenset({"name", "run", "shard", "digest", "digest_byte"})
"""Names that a store uses itself."""
MOST_RUNS = 2**24
"""Runs of one shard, at the most."""

_FIELD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LONGEST_TEXT = 1000
_LONGEST_LIST = 4096
_LONGEST_JSON = 2**24


def check_name(kind: str, name: Any) -> str:
    """`name`, if a field or a scalar may have it."""
    if not isinstance(name, str) or _FIELD.fullmatch(name) is None or name in RESERVED:
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a {kind}; take up to 64 of a-z, 0-9 and _, a letter first, and none "
            f"of {', '.join(sorted(RESERVED))}"
        )
    return name


def plain(name: str, value: Any) -> Value:
    """`value` as a plain one, if a configuration may hold it; numbers of NumPy become Python's, arrays lists."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        if len(value) > _LONGEST_LIST:
            raise InvalidInput(f"{name} has {len(value)} entries; a list may have {_LONGEST_LIST}")
        entries = [one.item() if isinstance(one, np.generic) else one for one in value]
        if any(isinstance(one, bool) or not isinstance(one, int | float) for one in entries):
            raise InvalidInput(f"{name} is {shown(value)}; a list may hold numbers only")
        return [plain(name, one) for one in entries]  # pyright: ignore[reportReturnType]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > LARGEST_WHOLE:
            raise InvalidInput(f"{name} is {shown(value)}; whole numbers must be below 2**63")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{name} is {value!r}; numbers must be finite")
        return float(value)
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT or not value.isprintable():
            raise InvalidInput(f"{name} is {shown(value)}; a text may have {_LONGEST_TEXT} printable characters")
        return str(value)
    raise InvalidInput(
        f"{name} is {shown(value)}; it must be a truth value, a number, a text, None or a list of numbers"
    )


def value_text(value: Value) -> str:
    """The JSON of a plain value."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@checked
def canonical_text(configuration: dict[str, Any]) -> str:
    """The configuration as JSON with sorted keys and without spaces, which is what its name is made of.

    **Arguments:**

    - `configuration`: values by field: truth values, numbers, texts, None, lists of numbers.

    **Returns:** the text.

    **Example:**

    >>> from stepwell.runs import canonical_text
    >>> canonical_text({"rank": 1, "lr": 0.1, "eigenvalues": [0.6, 0.4], "softmax": False})
    '{"eigenvalues":[0.6,0.4],"lr":0.1,"rank":1,"softmax":false}'
    """
    texts = {check_name("field", name): value_text(plain(name, value)) for name, value in configuration.items()}
    return "{" + ",".join(f'"{name}":{texts[name]}' for name in sorted(texts)) + "}"


@checked
def run_name(configuration: dict[str, Any]) -> str:
    """The name of a run: 32 hexadecimal digits, the beginning of the SHA-256 of its canonical configuration.

    **Arguments:**

    - `configuration`: values by field: truth values, numbers, texts, None, lists of numbers.

    **Returns:** the name. Equal configurations have equal names; 1 and 1.0 are not equal here.

    **Example:**

    >>> from stepwell.runs import run_name
    >>> run_name({"model": "attnS", "rank": 1, "seed": 0})
    'b648801e3915831ef29553f0fdb6b1c0'
    """
    return _digest(canonical_text(configuration)).hex()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:DIGEST]


def digests(common: Mapping[str, Value], varying: Mapping[str, list[str]], runs: int) -> np.ndarray:
    """The names of many runs, (run, 16) bytes.

    `common` are plain values that all have; `varying` has a JSON text for each run, by field.
    """
    columns: list[list[str]] = []
    constant = "{"
    for number, name in enumerate(sorted([*common, *varying])):
        constant += f'{"," if number else ""}"{name}":'
        if name in varying:
            columns.append([constant + text for text in varying[name]])
            constant = ""
        else:
            constant += value_text(common[name])
    end = constant + "}"
    texts = ["".join(parts) + end for parts in zip(*columns, strict=True)] if columns else [end] * runs
    return np.frombuffer(b"".join([_digest(text) for text in texts]), np.uint8).reshape(runs, DIGEST)


def parsed_json(what: str, text: Any) -> Any:
    """What a JSON text of unknown origin holds."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no number of JSON")

    if not isinstance(text, str) or len(text) > _LONGEST_JSON:
        raise InvalidInput(f"{what} is not a JSON text of at most {_LONGEST_JSON} characters")
    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{what} is not JSON: {shown(text)}") from None


def parsed_configuration(text: Any) -> dict[str, Value]:
    """The configuration that a canonical text of unknown origin holds."""
    made = parsed_json("the configuration", text)
    if not isinstance(made, dict) or canonical_text(made) != text:
        raise InvalidInput(f"the configuration is not in its canonical form: {shown(text)}")
    return made
