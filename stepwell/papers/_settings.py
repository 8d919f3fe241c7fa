"""Settings of a figure that can be changed from outside, by name, before its module is imported.

A figure reads its settings when it is imported: constants of a module through `setting`, and the fields of a data class
that is `changeable`. To change some, all modules of its paper are imported anew, under other values, and put aside
again: the figure that results has them wherever they are used, in what is derived from them too.

No more than the standard library is imported here.
"""

import ast
import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from stepwell._arguments import checked
from stepwell._errors import InvalidInput
from stepwell._text import shown


class SeedWords(tuple[str, ...]):
    """What was typed after `--seeds`: how many, a range, or each."""


Value = TypeVar("Value")
Class = TypeVar("Class", bound=type)

_changes: dict[str, Any] = {}
"""Values asked for, as texts or as they are, while a figure is imported."""
_used: dict[str, Any] = {}
"""What was made of them."""
_refused: dict[str, InvalidInput] = {}
"""Why they could not be used."""
_declared: dict[str, Any] = {}
"""Settings that were declared meanwhile, with the values that they have by default."""


def setting(name: str, value: Value) -> Value:
    """The value of a setting: what was asked for from outside, and else `value`, whose kind it must have.

    **Arguments:**

    - `name`: the name, as in `stepwell reproduce --set NAME=VALUE`.
    - `value`: what it is by default.

    **Returns:** the value.

    **Example:**

    >>> from stepwell.papers import setting
    >>> setting("context", 31)
    31
    """
    _declared.setdefault(name, value)
    if name not in _changes:
        return value
    try:
        _used[name] = _taken(name, _changes[name], value)
    except InvalidInput as error:  # a helper of the figure may have another setting of that name
        _refused[name] = error
        return value
    return _used[name]


def changeable(settings: Class) -> Class:
    """A data class, every field of which is a setting.

    **Arguments:**

    - `settings`: the data class.

    **Returns:** the same class. What is asked for from outside replaces the fields of every instance that the figure's
    module makes.

    **Example:**

    >>> from dataclasses import dataclass
    >>> from stepwell.papers import changeable
    >>> @changeable
    ... @dataclass(frozen=True)
    ... class Settings:
    ...     seeds: tuple[int, ...] = (1, 2)
    >>> Settings().seeds
    (1, 2)
    """
    initialise: Any = settings.__init__

    @functools.wraps(initialise)
    def changed(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, setting(field.name, getattr(self, field.name)))

    settings.__init__ = changed
    return settings


@contextlib.contextmanager
def changing(figure: str, module: str, changes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """While a figure is imported in this context, its settings are changed; what they became is filled in.

    Unknown ones are refused at the end.
    """
    package = module.rpartition(".")[0] or module
    before = {name: kept for name, kept in sys.modules.items() if _is_in(name, package)}
    for name in before:
        del sys.modules[name]
    _declared.clear()
    _used.clear()
    _refused.clear()
    _changes.update(changes)
    used: dict[str, Any] = {}
    try:
        yield used
    finally:
        used.update(_used)
        _changes.clear()
        for name in [name for name in sys.modules if _is_in(name, package)]:
            del sys.modules[name]
        sys.modules.update(before)
    for name, error in _refused.items():
        if name not in used:
            raise InvalidInput(f"{figure}: {error}")
    unknown = [name for name in changes if name not in _declared]
    if unknown:
        known = ", ".join(f"{name} ({shown(value)})" for name, value in sorted(_declared.items()))
        raise InvalidInput(
            f"{figure} has no setting {unknown[0]}; " + (f"its settings are {known}" if known else "it has none")
        )


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _taken(name: str, given: Any, default: Any) -> Any:
    """What was given, a text if it was typed, as the kind of value that the setting has by default."""
    if isinstance(given, SeedWords):
        return _seeds(name, given, default)
    value = _read(given) if isinstance(given, str) and not isinstance(default, str) else given
    if isinstance(default, tuple) and not isinstance(value, tuple | list):
        value = (value,)
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
    return {int: "a whole number", str: "a text"}.get(type(default), "left as it is: it cannot be written in a text")


@checked
def parsed_changes(words: Sequence[str]) -> dict[str, str]:
    """Changes from words such as context=60.

    **Arguments:**

    - `words`: the words, NAME=VALUE each.

    **Returns:** the values as texts, by name.

    **Example:**

    >>> from stepwell.papers import parsed_changes
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
