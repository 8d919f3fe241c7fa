"""Runs chosen from the index: which, and any of their columns."""

import re
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import DIGEST, first_of_each, hexadecimal, is_among
from stepwell._util.text import shown

from . import _index
from ._column import Column
from ._configuration import Value
from ._query import Condition, full_column, parsed_condition

_EXACT = 2**53
"""Integers beyond it are not all floats."""


class Piece(NamedTuple):
    """Some runs of a shard."""

    shard: _index.Row
    rows: np.ndarray


class Chosen:
    """The runs that match, in the order of shards and rows; columns are read when they are asked for."""

    def __init__(self, connection: sqlite3.Connection, where: Sequence[str] = (), names: np.ndarray | None = None):
        self._connection = connection
        self._columns: dict[str, dict[int, Column]] = {}
        shards = _index.rows(connection)
        kinds: dict[str, str] = {}
        for shard in shards:
            kinds |= dict.fromkeys(shard.common, "field") | shard.columns
        self.kinds = {name: kinds[name] for name in sorted(kinds, key=lambda name: (kinds[name], name))}
        conditions = [self._resolved(parsed_condition(text)) for text in where]
        every = np.concatenate([shard.names for shard in shards]) if shards else np.zeros((0, DIGEST), np.uint8)
        mask = first_of_each(every)
        if names is not None:
            mask &= is_among(every, names)
        self.pieces: list[Piece] = []
        end = 0
        for shard in shards:
            start, end = end, end + shard.runs
            rows = np.flatnonzero(mask[start:end])
            for condition in conditions:
                if len(rows):
                    rows = rows[self._holds(condition, shard, rows)]
            if len(rows):
                self.pieces.append(Piece(shard, rows))

    def _resolved(self, condition: Condition) -> Condition:
        return condition if condition.name == "name" else condition._replace(name=self.full_name(condition.name))

    def full_name(self, name: str) -> str:
        """The column that a name stands for; `InvalidInput` if no run has it.

        In a store without runs any may be asked for: it may come with the first.
        """
        return full_column(name, self.kinds) if self.kinds else name

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    def _holds(self, condition: Condition, shard: _index.Row, rows: np.ndarray) -> Any:
        if condition.name == "name":
            return _named(condition, shard.names[rows])
        column = self._part(condition.name, shard)
        if isinstance(column, Column):
            return condition.mask(column[rows])
        return np.full(len(rows), condition.holds(column))

    def _part(self, name: str, shard: _index.Row) -> Column | Value:
        """A column of a shard, or the value that all its runs have; None where they have none."""
        if name not in shard.columns:
            return shard.common.get(name)
        if name not in self._columns:
            self._columns[name] = _index.columns(self._connection, name)
        column = self._columns[name].get(shard.id)
        if column is None or len(column) != shard.runs:
            raise _index.Damaged(name)
        return column

    def held(self, shard: _index.Row) -> set[str]:
        """The fields and scalars that the runs of a shard have."""
        return {*shard.common, *shard.columns}

    def names(self) -> np.ndarray:
        """The names of the runs, (run, 16) bytes."""
        return np.concatenate([piece.shard.names[piece.rows] for piece in self.pieces] or [np.zeros((0, DIGEST), "u1")])

    def column(self, name: str) -> Column:
        """A field or scalar of all runs chosen, as one column. Where a run has none it is NaN, or None."""
        full = self.full_name(name)
        parts = [(self._part(full, piece.shard), piece.rows) for piece in self.pieces]
        return _joined([part[rows] if isinstance(part, Column) else (part, len(rows)) for part, rows in parts])

    def order(self, sort: str | None) -> np.ndarray:
        """The runs in the order of a column, `-column` for the largest first; NaN and None come last."""
        if sort is None:
            return np.arange(len(self))
        column = self.column(sort.removeprefix("-"))
        values = column.values
        last = np.zeros(len(column), bool)
        if (categories := column.categories) is not None:
            ranked = sorted(range(len(categories)), key=lambda code: _rank(categories[code]))
            place = np.empty(len(ranked), np.int64)
            place[ranked] = np.arange(len(ranked))
            values = place[column.values]
            last = np.array([one is None for one in categories], bool)[column.values]
        elif values.dtype.kind == "f":
            last = np.isnan(values)
        else:
            values = values.astype(np.int64)
        keys = -values if sort.startswith("-") else values
        return np.lexsort((keys, last))


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
        raise InvalidInput(f"name{condition.sign}{condition.text} is not a filter; give the digits a name begins with")
    digits = condition.text.lower()
    whole = np.frombuffer(bytes.fromhex(digits[: len(digits) // 2 * 2]), np.uint8)
    same = (names[:, : len(whole)] == whole).all(axis=1)
    if len(digits) % 2:
        same &= names[:, len(whole)] >> 4 == int(digits[-1], 16)
    return same if condition.sign == "=" else ~same


def _joined(parts: list[Any]) -> Column:
    """One column of several, each a `Column`, or a value and how many runs have it."""
    if not parts:
        return Column(np.zeros(0))
    kinds = {_kind(part) for part in parts}
    if kinds <= {"b"} or kinds <= {"i"} or kinds <= {"f", "missing"} and "f" in kinds:
        return Column(np.concatenate([_numbers(part) for part in parts]))
    if kinds <= {"i", "f", "missing"} and kinds & {"i", "f"} and all(map(_is_exact, parts)):
        return Column(np.concatenate([_numbers(part).astype(np.float64) for part in parts]))
    codes: dict[str, int] = {}
    categories: list[Value] = []
    made = []
    for part in parts:
        local = _as_categories(part)
        table = []
        for value, text in zip(local.categories or (), local.known(), strict=True):
            if codes.setdefault(text, len(codes)) == len(categories):
                categories.append(value)
            table.append(codes[text])
        made.append(np.array(table, np.int32)[local.values])
    return Column.trusted(np.concatenate(made), tuple(categories))


def _kind(part: Any) -> str:
    if isinstance(part, Column):
        return "c" if part.categories is not None else part.values.dtype.kind
    value = part[0]
    if value is None:
        return "missing"
    return "b" if isinstance(value, bool) else {int: "i", float: "f"}.get(type(value), "c")


def _numbers(part: Any) -> np.ndarray:
    if isinstance(part, Column):
        return part.values
    return np.full(part[1], np.nan if part[0] is None else part[0])


def _is_exact(part: Any) -> bool:
    if isinstance(part, Column):
        return part.values.dtype.kind == "f" or not len(part) or bool(np.abs(part.values).max() <= _EXACT)
    return not isinstance(part[0], int) or abs(part[0]) <= _EXACT


def _as_categories(part: Any) -> Column:
    if not isinstance(part, Column):
        return Column.trusted(np.zeros(part[1], np.int32), (part[0],))
    if part.categories is not None:
        return part
    values = part.values
    if values.dtype.kind != "f":
        distinct, codes = np.unique(values, return_inverse=True)
        return Column.trusted(codes.astype(np.int32), tuple(distinct.tolist()))
    finite = np.isfinite(values)  # a category is a value of JSON, which has no NaN
    distinct, codes = np.unique(np.where(finite, values, 0.0), return_inverse=True)
    codes = np.where(finite, codes, len(distinct))
    return Column.trusted(codes.astype(np.int32), (*distinct.tolist(), None))


def checked_limit(limit: int | None) -> int | None:
    """The number of runs at the most, if it is one."""
    if limit is not None and limit < 0:
        raise InvalidInput(f"limit is {shown(limit)}; it must be None or an integer from 0 on")
    return limit
