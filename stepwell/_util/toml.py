"""Tables of plain values as TOML and JSON files: experiments and studies."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import InvalidInput

_LONGEST = 2**20
"""Bytes of a file; ours have some hundred."""


def document_in(path: str | os.PathLike) -> dict[str, Any]:
    """The tables in a TOML file, or in a JSON file if its name ends with `.json`."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror or error}); give a TOML file") from None
    is_json = str(path).endswith(".json")
    try:
        if len(content) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST} bytes")
        made = json.loads(content, object_pairs_hook=_once) if is_json else tomllib.loads(content.decode())
        if not isinstance(made, dict):
            raise ValueError("it is not a table")
        return made
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        kind = "JSON" if is_json else "TOML"
        raise InvalidInput(f"{path} is not a {kind} file ({reason}); `stepwell train --dry-run` prints one") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table, each of whose keys is there once, as TOML wants it, too."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)!r} twice")
    return made


def as_toml(document: Mapping[str, Any]) -> str:
    """Tables of plain values as TOML; values outside of tables come first."""
    parts = []
    single = {name: value for name, value in document.items() if not isinstance(value, Mapping)}
    if single:
        parts.append("\n".join(f"{_key(name)} = {_value(value)}" for name, value in single.items()))
    for name, table in document.items():
        if isinstance(table, Mapping):
            parts.append("\n".join([f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())]))
    return "\n\n".join(parts) + "\n"


def _key(name: str) -> str:
    return name if name.replace("_", "a").replace("-", "a").isalnum() and name.isascii() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
