"""Settings of a figure, changed from outside by name: other values of the fields of a data class.

No more than the standard library is imported here.
"""

import ast
import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown


class SeedWords(tuple[str, ...]):
    """What was typed after `--seeds`: how many, a range, or each."""


Settings = TypeVar("Settings")


def changed_settings(figure: str, settings: Settings, changes: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Settings with some of them changed, and the values that these got.

    `figure` is what messages call it. A change is a value, or the text of one.
    """
    given: Any = settings
    own = {field.name: getattr(given, field.name) for field in dataclasses.fields(given) if field.init}
    unknown = [name for name in changes if name not in own]
    if unknown:
        known = ", ".join(f"{name} ({shown(value)})" for name, value in sorted(own.items()))
        raise InvalidInput(
            f"{figure} has no setting {unknown[0]}; " + (f"its settings are {known}" if known else "it has none")
        )
    hints = typing.get_type_hints(type(given))
    try:
        values = {name: _taken(name, change, own[name]) for name, change in changes.items()}
        for name, value in values.items():
            if value is None and type(None) not in typing.get_args(hints[name]):
                raise InvalidInput(f"{name} is none; it must be {_kind(own[name])}, as {shown(own[name])} is")
        return dataclasses.replace(given, **values), values
    except InvalidInput as error:
        raise InvalidInput(f"{figure}: {error}") from None


def _taken(name: str, given: Any, default: Any) -> Any:
    """What was given, a text if it was typed, as the kind of value that the setting has by default."""
    if isinstance(given, SeedWords):
        return _seeds(name, given, default)
    value = _read(given) if isinstance(given, str) and not isinstance(default, str) else given
    if isinstance(default, tuple) and not isinstance(value, tuple | list):
        words = isinstance(value, str) and bool(default) and isinstance(default[0], str)
        value = tuple(word.strip() for word in value.split(",")) if words else (value,)
    if not _is_like(value, default):
        raise InvalidInput(f"{name} is {shown(given)}; it must be {_kind(default)}, as {shown(default)} is")
    return _as(value, default)


def _read(text: str) -> Any:
    """A text as a value: a number, true, false, none, a range 20:40, or several with commas between them."""
    words = {"true": True, "false": False, "none": None}
    plain = text.strip()
    if plain.lower() in words:
        return words[plain.lower()]
    begin, colon, end = plain.partition(":")
    if colon and begin.isdigit() and end.isdigit():
        return tuple(range(int(begin), int(end)))
    try:
        return ast.literal_eval(plain)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return plain


def _seeds(name: str, given: SeedWords, default: Any) -> Any:
    """Seeds where the figure lists them; where it counts them, how many."""
    from stepwell.experiments import seeds_of

    if isinstance(default, tuple):
        return tuple(seeds_of(given, default[0]))
    listed = seeds_of(given, 0)
    if len(given) > 1 or ":" in given[0]:
        raise InvalidInput(
            f"--seeds is {' '.join(given)}; this figure counts its seeds: give how many, such as {default}"
        )
    return len(listed)


def _is_like(value: Any, default: Any) -> bool:
    if default is None or value is None:
        return value is None or isinstance(value, int | float)
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, int | float)
    if isinstance(default, int | str):
        return type(value) is type(default)
    if isinstance(default, tuple | list) and isinstance(value, tuple | list):
        return len(value) > 0 and (not default or all(_is_like(one, default[0]) for one in value))
    return False


def _as(value: Any, default: Any) -> Any:
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    if isinstance(default, tuple):
        return tuple(_as(one, default[0]) if default else one for one in value)
    return value


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, tuple | list):
        return f"several with commas between them, each {_kind(default[0])}" if default else "several"
    if isinstance(default, float) or default is None:
        return "a number"
    return {int: "an integer", str: "a string"}.get(type(default), "left as it is: it cannot be written as a string")


@checked
def parsed_changes(words: Sequence[str]) -> dict[str, str]:
    """Changes from words such as context=60.

    **Arguments:**

    - `words`: the words, NAME=VALUE each.

    **Returns:** the values as texts, by name.

    **Example:**

    >>> from stepwell.figures import parsed_changes
    >>> parsed_changes(["context=60", "seeds=20:40"])
    {'context': '60', 'seeds': '20:40'}
    """
    changes: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier() or not value.strip():
            raise InvalidInput(f"--set {shown(word)} is no setting; write NAME=VALUE, for instance --set context=60")
        if name in changes:
            raise InvalidInput(f"--set has {name} twice; give it once")
        changes[name] = value.strip()
    return changes
