"""The JSON Schema by which editors check experiments."""

from typing import Any

from ._experiment import SEED
from ._kind import SECTIONS, Kind, kinds


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
    described = {"type": "object", "description": kind.help}
    return {**described, "properties": {**own, **fields}, "additionalProperties": False}
