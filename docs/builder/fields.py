"""`python -m docs.builder.fields`: renew the table of fields in docs/experiments.md, and the JSON Schema beside it.

Both are made of the declarations of kinds; `tests/test_site.py` compares them.
"""

import json
import re
from pathlib import Path

from stepwell.experiments import SECTIONS, DeclaredField, Kind, json_schema, kinds

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "experiments.md"
SCHEMA = DOCS / "static" / "experiment.schema.json"
BEGIN, END = "<!-- fields: python -m docs.builder.fields -->", "<!-- end of fields -->"


def tables() -> str:
    """The kinds of each section, and a table of the fields of each, as Markdown."""
    parts = []
    for section in SECTIONS:
        parts.append(f"### [{section}]")
        for kind in _ours(section):
            title = "" if section == "record" else f"**`{kind.name}`.** "
            parts.append(title + kind.help)
            if kind.fields:
                parts.append("\n".join(["| field | type | default | what it is |", "|---|---|---|---|", *_rows(kind)]))
    return "\n\n".join(parts)


def _ours(section) -> list[Kind]:
    """What the package brings, without kinds that were registered since."""
    return [kind for kind in kinds(section).values() if kind.build.__module__.startswith("stepwell.")]


def _rows(kind: Kind) -> list[str]:
    return [
        f"| `{name}` | {_escaped(field.allowed())} | {_default(field)} | {_what(field)} |"
        for name, field in kind.fields.items()
    ]


def _what(field: DeclaredField) -> str:
    when = [f"`{name}` {' or '.join(map(str, values))}" for name, values in field.about.when.items()]
    return _escaped(field.description() + (f"; where {' and '.join(when)}" if when else ""))


def _default(field: DeclaredField) -> str:
    value = field.default
    if value is None or value == ():
        return ""
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def _escaped(text: str) -> str:
    return (
        text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
        if "`" not in text
        else text.replace("|", "\\|")
    )


def page(text: str) -> str:
    """The text of the page with the tables as they are now."""
    return re.sub(
        f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n\n{tables()}\n\n{END}", text, flags=re.S
    )


def schema() -> str:
    """The JSON Schema as a file has it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
