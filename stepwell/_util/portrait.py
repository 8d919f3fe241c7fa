"""How tasks and models show themselves: one line in a console, a small table in a notebook."""

import dataclasses
import html
from typing import Any

_MANY = 8
"""Numbers of a list that are shown."""


def line(thing: Any, facts: dict[str, Any]) -> str:
    """The class and what there is to say, on one line."""
    return f"{type(thing).__name__}({', '.join(f'{name}={value}' for name, value in facts.items())})"


def table(thing: Any, facts: dict[str, Any]) -> str:
    """The same as a table in HTML."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{html.escape(type(thing).__name__)}</caption><tbody>{rows}</tbody></table>"


def settings(thing: Any, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a data class that are plain values, but for those named and those that are None or False."""
    fields = {f.name: getattr(thing, f.name, None) for f in dataclasses.fields(thing) if not f.name.startswith("_")}
    plain = {name: value for name, value in fields.items() if isinstance(value, str | bool | int | float | tuple)}
    return {name: repr(value) for name, value in plain.items() if name not in but and value is not False}


def numbers(values: Any) -> str:
    """Numbers in brackets; of many the first and the last."""
    texts = [f"{value:.4g}" for value in values]
    if len(texts) > _MANY:
        texts = [*texts[: _MANY - 2], "…", texts[-1]]
    return f"[{', '.join(texts)}]"
