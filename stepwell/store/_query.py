"""Runs chosen from the index by filters such as `model.kind=separate`, `rank=2`, `final_loss<0.3`."""

import json
import math
import operator
import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stepwell._util.checks import LARGEST_WHOLE
from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import DIGEST, first_of_each, hexadecimal, is_among, value_text
from stepwell._util.text import nearest_of, shown

from . import _index
from ._values import Column, Value

_FORM = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?)\s*(<=|>=|!=|==|=|<|>|~)\s*(.*?)\s*", re.DOTALL
)
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_NUMBER = int | float
_WORDS = {"true": True, "false": False, "none": None, "null": None}
_LONGEST = 2000
_EXACT = 2**53  # integers beyond it are not all floats


class Condition(NamedTuple):
    """One comparison of a field or scalar; `mask` says for which runs it holds."""

    name: str
    sign: str  # one of = != < <= > >= ~
    text: str  # what it is compared with, as it was written
    operand: Any  # the same as a value; a pattern for ~

    def mask(self, column: Column) -> np.ndarray:
        """Where the condition holds."""
        if self.sign == "~":
            column = column.as_categories()
        if column.categories is not None:
            return np.array([self.holds(one) for one in column.categories], bool)[column.values]
        if self.sign in _ORDER:
            return _ORDER[self.sign](column.values, self.operand)
        if (column.values.dtype.kind == "b") != isinstance(self.operand, bool) or not isinstance(self.operand, _NUMBER):
            same = np.zeros(len(column), bool)
        else:
            same = np.isnan(column.values) if math.isnan(self.operand) else column.values == self.operand
        return same if self.sign == "=" else ~same

    def holds(self, value: Value) -> bool:
        """Whether it holds for one value; of a run without this field the value is None."""
        if self.sign == "~":
            return self.operand.search(value if isinstance(value, str) else value_text(value)) is not None
        if self.sign in _ORDER:
            return _is_number(value) and bool(_ORDER[self.sign](value, self.operand))  # pyright: ignore[reportArgumentType]
        return _equal(value, self.operand, self.text) == (self.sign == "=")


def parsed_condition(text: Any) -> Condition:
    """The condition that was written."""
    form = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    if form is None:
        raise InvalidInput(
            f"{shown(text)} is not a filter; write a field, one of = != < <= > >= ~, and a value, such as "
            "model.kind=separate or final_loss<0.3"
        )
    name, sign, words = form[1], form[2].replace("==", "="), form[3]
    if sign == "~":
        try:
            return Condition(name, sign, words, re.compile(words))
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidInput(f"{shown(words)} is not a regular expression ({error})") from None
    operand = _operand(words)
    if sign in _ORDER and not _is_number(operand):
        raise InvalidInput(f"{shown(text)} compares with {shown(words)}; {sign} takes a number")
    return Condition(name, sign, words, operand)


def full_column(name: str, known: Iterable[str]) -> str:
    """The column that a name stands for: itself, `model.heads` for `heads`, `model.kind` for `model`."""
    names = sorted(known)
    if name in names:
        return name
    meant = [column for column in names if column.endswith(f".{name}") or column == f"{name}.kind"]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise InvalidInput(f"several fields are called {name}; write {' or '.join(meant)}")
    short = [column.removesuffix(".kind").rpartition(".")[2] for column in names]
    near = nearest_of(name, [*short, *names])
    rest = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
    raise InvalidInput(f"no run has a field or scalar {shown(name)}; {rest}")


def _operand(text: str) -> Any:
    """A value as it is written: a number, true, false, none, a list, a string in quotation marks, or else a string."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for make in (int, float):
        try:
            number = make(text)
        except (ValueError, OverflowError):
            continue
        if make is float or abs(number) <= LARGEST_WHOLE:  # a larger integer becomes a float
            return number
    if text[:1] in ('"', "[") or "," in text:
        try:
            made = json.loads(text if text[:1] in ('"', "[") else f"[{text}]")
        except (ValueError, RecursionError):
            return text
        if isinstance(made, str) or (isinstance(made, list) and all(map(_is_number, made))):
            return made
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(value: Value, operand: Any, text: str) -> bool:
    """Whether a value is what was written. A text is compared as it was written, too: a kind may be called `none`."""
    if isinstance(value, str):
        return value == (operand if isinstance(operand, str) else text)
    if isinstance(value, bool) or value is None:
        return value is operand
    if isinstance(value, list):
        return value == operand or value == [word.strip() for word in text.split(",")]
    return _is_number(operand) and value == operand


class Piece(NamedTuple):
    """Some runs of a shard."""

    shard: _index.Row
    rows: np.ndarray


class Chosen:
    """The runs that match, in the order of shards and rows; columns are read when they are asked for."""

    def __init__(self, connection: sqlite3.Connection, where: Sequence[str] = (), names: np.ndarray | None = None):
        self._connection = connection
        self._columns: dict[str, dict[str, Column]] = {}
        shards = _index.rows(connection)
        kinds: dict[str, str] = {}
        for shard in shards:
            kinds |= dict.fromkeys(shard.common, "field") | shard.columns
        self.kinds = {name: kinds[name] for name in sorted(kinds, key=lambda name: (kinds[name], name))}
        conditions = [parsed_condition(text) for text in where]
        conditions = [one._replace(name=self.full_name(one.name)) for one in conditions]
        every = _index.names_in(shards)
        mask = first_of_each(every)
        if names is not None:
            mask &= is_among(every, names)
        self.pieces: list[Piece] = []
        end = 0
        for shard in shards:
            start, end = end, end + shard.runs
            rows = np.flatnonzero(mask[start:end])
            for condition in conditions:
                if not len(rows):
                    break
                if condition.name == "name":
                    rows = rows[_named(condition, shard.names[rows])]
                else:
                    rows = rows[condition.mask(self._part(condition.name, shard)[rows])]
            if len(rows):
                self.pieces.append(Piece(shard, rows))

    def full_name(self, name: str) -> str:
        """The column that a name stands for; in a store without runs any name will do."""
        return full_column(name, self.kinds) if self.kinds and name != "name" else name

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    def _part(self, name: str, shard: _index.Row) -> Column:
        """A column of a shard; None where its runs have none."""
        if name not in shard.columns:
            return Column.repeated(shard.common.get(name), shard.runs)
        if name not in self._columns:
            self._columns[name] = _index.columns(self._connection, name)
        column = self._columns[name].get(shard.file)
        if column is None:
            raise _index.Damaged(name)
        return column

    def names(self) -> np.ndarray:
        """The names of the runs, (run, 16) bytes."""
        return np.concatenate([piece.shard.names[piece.rows] for piece in self.pieces] or [np.zeros((0, DIGEST), "u1")])

    def column(self, name: str) -> Column:
        """A field or scalar of all runs chosen, as one column. Where a run has none it is NaN, or None."""
        full = self.full_name(name)
        return _joined([self._part(full, piece.shard)[piece.rows] for piece in self.pieces])

    def order(self, sort: str | None) -> np.ndarray:
        """The runs in the order of a column, `-column` for the largest first; NaN and None come last."""
        if sort is None:
            return np.arange(len(self))
        column = self.column(sort.removeprefix("-"))
        if (categories := column.categories) is not None:
            ranked = sorted(range(len(categories)), key=lambda code: _rank(categories[code]))
            values = np.argsort(ranked)[column.values]
            last = np.array([one is None for one in categories], bool)[column.values]
        else:
            values = column.values if column.values.dtype.kind == "f" else column.values.astype(np.int64)
            last = np.isnan(values)
        return np.lexsort((-values if sort.startswith("-") else values, last))


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers before strings before lists, each among themselves."""
    kinds = (bool, (int, float), str, list)
    kind = next((number for number, one in enumerate(kinds) if isinstance(value, one)), len(kinds))
    return kind, [_rank(one) for one in value] if isinstance(value, list) else 0 if value is None else value


def _named(condition: Condition, names: np.ndarray) -> np.ndarray:
    """Runs whose name begins with the digits given."""
    if condition.sign == "~":
        return np.array([condition.operand.search(text) is not None for text in hexadecimal(names)], bool)
    if condition.sign not in ("=", "!=") or re.fullmatch("[0-9a-fA-F]{1,32}", condition.text) is None:
        raise InvalidInput(
            f"the name of a run is given as {shown(condition.text)}; give the hexadecimal digits that it begins with"
        )
    digits = condition.text.lower()
    whole = np.frombuffer(bytes.fromhex(digits[: len(digits) // 2 * 2]), np.uint8)
    same = (names[:, : len(whole)] == whole).all(axis=1)
    if len(digits) % 2:
        same &= names[:, len(whole)] >> 4 == int(digits[-1], 16)
    return same if condition.sign == "=" else ~same


def _joined(parts: list[Column]) -> Column:
    """One column of several: numbers if all are, with NaN where runs have none, and else categories."""
    if not parts:
        return Column(np.zeros(0))
    missing = [part.categories == (None,) for part in parts]
    there = [part for part, none in zip(parts, missing, strict=True) if not none]
    kinds = {"c" if part.categories is not None else part.values.dtype.kind for part in there}
    if (
        len(kinds) == 1
        and kinds <= {"b", "i", "f"}
        and (not any(missing) or kinds == {"f"})
        or (kinds and kinds <= {"i", "f"} and all(map(_is_exact, there)))
    ):
        values = [np.full(len(part), np.nan) if part.categories is not None else part.values for part in parts]
        return Column(np.concatenate(values))
    coded = [part.as_categories() for part in parts]
    categories = {value_text(value): value for part in coded for value in part.categories or ()}
    codes = {text: code for code, text in enumerate(categories)}
    tables = [np.array([codes[value_text(value)] for value in part.categories or ()], np.int32) for part in coded]
    values = [table[part.values] for table, part in zip(tables, coded, strict=True)]
    return Column(np.concatenate(values), tuple(categories.values()))


def _is_exact(part: Column) -> bool:
    """Whether floats hold all its numbers."""
    return part.values.dtype.kind == "f" or not len(part) or bool(np.abs(part.values).max() <= _EXACT)
