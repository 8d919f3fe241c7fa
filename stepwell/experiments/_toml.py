"""Experiments and studies as TOML and JSON files, and the JSON Schema by which editors check them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepwell._util.errors import InvalidInput

from ._experiment import SEED
from ._kind import SECTIONS, Kind, kinds

_LONGEST = 2**20
"""Bytes of a file; ours have some hundred."""


def document_in(path: str | os.PathLike) -> dict[str, Any]:
    """Return the content of a TOML or JSON file.

    **Arguments:**

    - `path`: the file; JSON if its name ends with `.json`, else TOML.

    **Returns:** its tables. `InvalidInput` is raised if it cannot be read.

    **Example:**

    >>> from pathlib import Path
    >>> from stepwell.experiments import document_in
    >>> _ = Path("run.toml").write_text("seed = 3")
    >>> document_in("run.toml")
    {'seed': 3}
    """
    import tomllib

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
    """Return tables of plain values as TOML; values outside of tables come first.

    **Arguments:**

    - `document`: values and tables of values by name.

    **Returns:** the text of a TOML file.

    **Example:**

    >>> from stepwell.experiments import as_toml
    >>> print(as_toml({"model": {"heads": 2}, "seed": 3}))
    seed = 3
    <BLANKLINE>
    [model]
    heads = 2
    <BLANKLINE>
    """
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


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an experiment, with all kinds that are registered now.

    **Returns:** the schema, of draft 2020-12.

    **Example:**

    >>> from stepwell.experiments import json_schema
    >>> sorted(json_schema()["properties"])
    ['model', 'objective', 'record', 'seed', 'task', 'training']
    """
    properties: dict[str, Any] = {"seed": SEED.schema()}
    for section in SECTIONS:
        each = kinds(section, installed=True)
        if section == "record":
            properties[section] = _table(each["record"], named=False)
        else:
            properties[section] = {"anyOf": [{"enum": list(each)}, *map(_table, each.values())]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stepwell experiment",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _table(kind: Kind, named: bool = True) -> dict[str, Any]:
    fields = {name: field.schema() for name, field in kind.fields.items()}
    own = {"kind": {"const": kind.name, "description": kind.help}} if named else {}
    return {
        "type": "object",
        "description": kind.help,
        "properties": {**own, **fields},
        "additionalProperties": False,
    }
