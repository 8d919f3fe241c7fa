"""The configuration of a run: the flat canonical form of its experiment, as a store keeps it.

It goes from names such as `model.heads` to plain values: a boolean, an integer, a number, a string, None, or a list of
these. Its text is JSON with sorted keys and without spaces, and the name of the run is the beginning of the SHA-256 of
that text (`stepwell.experiments.name_of`): who asks for the same run finds it. 1, 1.0 and True are different values
here. A store needs no kind to be registered: what it holds are values.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell._util.checks import LARGEST_WHOLE
from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown

Value = bool | int | float | str | None | list[bool | int | float | str]

RESERVED = frozenset({"name", "run", "shard", "digest", "digest_byte"})
"""Names that a store uses itself."""
MOST_RUNS = 2**24
"""Runs of one shard, at the most."""

_FIELD = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63})?")
_LONGEST_TEXT = 1000
_LONGEST_LIST = 4096
_LONGEST_JSON = 2**24


def check_name(kind: str, name: Any) -> str:
    """`name`, if a field or a scalar may have it."""
    if not isinstance(name, str) or _FIELD.fullmatch(name) is None or name in RESERVED:
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a {kind}; take up to 64 of a-z, 0-9 and _, a letter first, with a "
            f"section and a dot before it if need be, and none of {', '.join(sorted(RESERVED))}"
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
        if not all(isinstance(one, bool | int | float | str) for one in entries):
            raise InvalidInput(f"{name} is {shown(value)}; a list may hold numbers, strings and booleans only")
        return [plain(name, one) for one in entries]  # pyright: ignore[reportReturnType]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > LARGEST_WHOLE:
            raise InvalidInput(f"{name} is {shown(value)}; integers must be below 2**63")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{name} is {value!r}; numbers must be finite")
        return float(value)
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT or not value.isprintable():
            raise InvalidInput(f"{name} is {shown(value)}; a string may have {_LONGEST_TEXT} printable characters")
        return str(value)
    raise InvalidInput(f"{name} is {shown(value)}; it must be a boolean, a number, a string, None or a list of these")


def checked_text(configuration: Mapping[str, Any]) -> str:
    """The canonical text of a configuration, if it is one."""
    values = {check_name("field", name): plain(name, value) for name, value in configuration.items()}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


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
    if not isinstance(made, dict) or checked_text(made) != text:
        raise InvalidInput(f"the configuration is not in its canonical form: {shown(text)}")
    return made
