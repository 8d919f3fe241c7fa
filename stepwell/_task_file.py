"""A run as a TOML file: the flags of `stepwell train` as keys, in tables `task`, `model` and `training`.

`stepwell train --dry-run` writes one, `--task FILE` reads it. `stepwell predict` reads the same file. Flags on the
command line replace what the file says.
"""

import argparse
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stepwell._errors import InvalidInput
from stepwell._text import shown

from ._parser import Parser

TABLES = ("task", "model", "training")
_LONGEST = 2**20
"""Bytes of a file; ours have some hundred."""
_NUMBERS = {"eigenvalues", "task_eigenvalues", "dims", "strengths", "convention"}
_SHAPE, _SIZE = {"spectrum", "white_cov"}, {"dim", "in_dim"}
_REPLACED = (
    ({"eigenvalues", "dims"}, _NUMBERS | _SHAPE | _SIZE),
    (_SHAPE, _NUMBERS | _SHAPE),  # in the same dimension
    (_SIZE, _NUMBERS | _SIZE),  # of the same shape
    *((same, same) for same in ({"context", "seq_len", "vary_len"}, {"heads", "head_num"}, {"epoch", "until"})),
    ({"seed", "seeds"}, {"seed", "seeds"}),
)
"""One of the first on the command line replaces all of the second that the file has: they say the same otherwise."""
_NOT_IN_FILES = {"task", "help", "dry_run", "json", "show", "resume", "overwrite", "out", "store", "fresh"}


def add_file_flag(
    parser: Parser,
    group: argparse._ArgumentGroup,
    others: Iterable[str] = (),
    needed: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Declare `--task FILE`. `others` are keys that another verb knows, and this one leaves aside; some only if they
    have the value `needed`."""
    group.add_argument(
        "--task",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="a TOML file of flags, as `stepwell train --dry-run` prints it; flags given here count before its own",
    )
    aside = frozenset(others)
    parser.expand = lambda parser, words: _expanded(parser, words, aside, needed)


def _expanded(parser: Parser, words: list[str], aside: frozenset[str], needed: Mapping[str, Any]) -> list[str]:
    given = parser.given(words)
    if "task" not in given:
        return words
    path = given["task"]
    replaced = replaced_by(given)
    file_words: list[str] = []
    for key, value in read(path).items():
        plain = key.replace("-", "_")
        if not _is_flag(parser, key):
            if plain in needed and value != needed[plain]:
                raise InvalidInput(f"{path}: {key} is {shown(value)}, for which {parser.prog} has nothing to say")
            if plain in aside:
                continue
        action = flag_of(parser, key, path)
        if action.dest not in replaced:
            file_words += words_of(path, key, value, action)
    return [*file_words, *words]


def replaced_by(given: Iterable[str]) -> set[str]:
    """The arguments that those given take the place of: themselves, and others that say the same."""
    names = set(given)
    return names.union(*(others for own, others in _REPLACED if own & names))


def _is_flag(parser: Parser, key: str) -> bool:
    action = parser.action_of(key)
    return action is not None and action.dest not in _NOT_IN_FILES


def flag_of(parser: Parser, key: str, source: str) -> argparse.Action:
    """The flag that a key of `source` means; `InvalidInput` with the nearest one if it means none."""
    action = parser.action_of(key)
    if action is not None and action.dest not in _NOT_IN_FILES:
        return action
    known = [name.lstrip("-") for each in parser._actions for name in each.option_strings[:1]]
    near = difflib.get_close_matches(key, [name for name in known if name not in _NOT_IN_FILES], n=1)
    advice = f"did you mean {near[0]}?" if near else f"keys are the flags of {parser.prog}, without --"
    raise InvalidInput(f"{source} has the key {shown(key)}, which is none; {advice}")


def read(path: str) -> dict[str, Any]:
    """The keys of a file with their values; those of all tables together."""
    return flattened(document_in(path), path)


def document_in(path: str) -> dict[str, Any]:
    """The content of a TOML file."""
    import tomllib

    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror or error}); give a TOML file") from None
    try:
        if len(content) > _LONGEST:
            raise ValueError(f"it has more than {_LONGEST} bytes")
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInput(f"{path} is not a TOML file ({reason}); `stepwell train --dry-run` prints one") from None


def flattened(document: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The keys of all tables together."""
    keys: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict) and name not in TABLES:
            raise InvalidInput(f"{path} has the table {shown(name)}; its tables may be {', '.join(TABLES)}")
        for key, entry in value.items() if isinstance(value, dict) else ((name, value),):
            if key in keys:
                raise InvalidInput(f"{path} has the key {shown(key)} twice, in two tables; give it once")
            keys[key] = entry
    return keys


def words_of(path: str, key: str, value: Any, action: argparse.Action) -> list[str]:
    """A key and its value as words of a command line."""
    flag = action.option_strings[0]
    if action.nargs == 0:  # a switch
        if not isinstance(value, bool):
            raise InvalidInput(f"{path}: {key} is {shown(value)}; it must be true or false")
        return [flag] if value else []
    listed = value if isinstance(value, list) else [value]
    if not listed or (isinstance(value, list) and action.nargs is None) or not all(map(_is_plain, listed)):
        wanted = "a number or a text" if action.nargs is None else "a list of numbers or texts, not empty"
        raise InvalidInput(f"{path}: {key} is {shown(value)}; it must be {wanted}")
    if any(isinstance(entry, str) and entry.startswith("-") for entry in listed):
        raise InvalidInput(f"{path}: {key} is {shown(value)}; a text may not begin with -")
    return [flag, *map(str, listed)] if action.nargs is not None else [f"{flag}={value}"]


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def as_toml(tables: dict[str, dict[str, Any]]) -> str:
    """Tables of plain values as TOML."""
    parts = []
    for name, values in tables.items():
        parts.append("\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]))
    return "\n\n".join(parts) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
