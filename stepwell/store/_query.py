"""Filters such as `model.kind=separate`, `rank=2`, `final_loss<0.3`."""

import difflib
import json
import math
import operator
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from stepwell._util.checks import LARGEST_WHOLE
from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import value_text
from stepwell._util.text import shown

from ._column import Column
from ._configuration import Value

_FORM = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)?)\s*(<=|>=|!=|==|=|<|>|~)\s*(.*?)\s*", re.DOTALL
)
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_WORDS = {"true": True, "false": False, "none": None, "null": None}
_LONGEST = 2000


class Condition(NamedTuple):
    """One comparison of a field or scalar; `mask` says for which runs it holds."""

    name: str
    sign: str
    """One of = != < <= > >= ~."""
    text: str
    """What it is compared with, as it was written."""
    operand: Any
    """The same as a value; a pattern for ~."""

    def mask(self, column: Column) -> np.ndarray:
        """Where the condition holds."""
        if column.categories is not None:
            return np.array([self.holds(one) for one in column.categories], bool)[column.values]
        if self.sign == "~":
            return np.array([self.operand.search(text) is not None for text in column.texts()], bool)
        number = _is_number(self.operand)
        if self.sign in _ORDER:
            return _ORDER[self.sign](column.values, self.operand)
        if column.values.dtype.kind == "b":
            same = column.values == self.operand if isinstance(self.operand, bool) else np.zeros(len(column), bool)
        elif number and math.isnan(self.operand):
            same = np.isnan(column.values)
        else:
            same = column.values == self.operand if number else np.zeros(len(column), bool)
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
    near = difflib.get_close_matches(name, [*short, *names], n=1, cutoff=0.5)
    rest = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
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
        if make is float or abs(number) <= LARGEST_WHOLE:  # a larger whole number becomes a float
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
