"""One value for each run: booleans, integers, numbers, or one of several categories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell._util.checks import LARGEST_WHOLE
from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import value_text
from stepwell._util.text import shown

from ._configuration import Value, plain

KINDS = {"?": "bool", "q": "int64", "d": "float64"}
"""Types of values, by NumPy's character; codes of categories are int32."""


@dataclass(frozen=True, eq=False)
class Column:
    """Values over `run`.

    **Arguments:**

    - `values`: bool, int64 or float64; or int32, codes of `categories`.
    - `categories`: None, or what the codes stand for: strings, None, lists, or a mixture of any plain values.
    """

    values: np.ndarray
    categories: tuple[Value, ...] | None = None

    def __post_init__(self) -> None:
        if self.values.ndim != 1:
            raise InvalidInput(f"a column has shape {self.values.shape}; it must have one axis, run")
        if self.categories is None:
            if self.values.dtype.char not in KINDS and self.values.dtype not in map(np.dtype, KINDS):
                raise InvalidInput(f"a column is of {self.values.dtype}; it must be bool, int64 or float64")
            return
        _check_codes(self.values, len(self.categories))
        texts = [value_text(plain("a category", one)) for one in self.categories]
        if len(set(texts)) < len(texts):
            raise InvalidInput("categories are repeated; each may be there once")

    @classmethod
    def trusted(cls, values: np.ndarray, categories: tuple[Value, ...] | None) -> "Column":
        """A column whose categories were checked before; of the codes only the range is."""
        if categories is not None:
            _check_codes(values, len(categories))
        made = object.__new__(cls)
        object.__setattr__(made, "values", values)
        object.__setattr__(made, "categories", categories)
        return made

    @classmethod
    def of(cls, values: Any, *, name: str = "a column") -> "Column":
        """A column of any values, of the narrowest kind that keeps every one as it is."""
        if isinstance(values, Column):
            return values
        if isinstance(values, np.ndarray) and values.ndim == 1:
            if values.dtype.kind == "b":
                return cls(values)
            if values.dtype.kind in "iu" and (values.dtype != np.uint64 or not np.any(values > LARGEST_WHOLE)):
                return cls(values.astype(np.int64))
            if values.dtype.kind == "f" and values.dtype.itemsize <= 8:
                return cls(values.astype(np.float64))
        entries: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else list(values)
        entries = [one.item() if isinstance(one, np.generic) else one for one in entries]
        kinds = {type(one) for one in entries}
        if kinds == {bool}:
            return cls(np.array(entries, bool))
        if kinds == {int} and all(abs(one) <= LARGEST_WHOLE for one in entries):
            return cls(np.array(entries, np.int64))
        if kinds == {float}:
            return cls(np.array(entries, np.float64))
        codes: dict[str, int] = {}
        categories: list[Value] = []
        places = []
        for one in entries:
            value = plain(name, one)
            code = codes.setdefault(value_text(value), len(codes))
            if code == len(categories):
                categories.append(value)
            places.append(code)
        return cls(np.array(places, np.int32), tuple(categories))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> "Column":
        return Column.trusted(self.values[rows], self.categories)

    def check_finite(self, name: str) -> None:
        """Refuse a number that no configuration may hold."""
        if self.values.dtype.kind == "f" and not np.isfinite(self.values).all():
            raise InvalidInput(f"the field {name} is not finite in every run; only scalars may be NaN or infinite")

    def texts(self) -> list[str]:
        """The JSON of each value, as in a canonical configuration. Numbers must be finite."""
        if self.categories is not None:
            known = self.known()
            return [known[code] for code in self.values.tolist()]
        if self.values.dtype.kind == "b":
            return ["true" if one else "false" for one in self.values.tolist()]
        return list(map(repr, self.values.tolist()))

    def known(self) -> list[str]:
        """The JSON of each category."""
        return [value_text(one) for one in self.categories or ()]

    def decoded(self) -> np.ndarray:
        """The values themselves: numbers as they are, categories as objects."""
        if self.categories is None:
            return self.values
        known = np.empty(len(self.categories), object)
        known[:] = [*self.categories]
        return known[self.values]

    def value(self, row: int) -> Value:
        """The value of one run, as Python has it; a scalar may be NaN."""
        return self.values[row].item() if self.categories is None else self.categories[int(self.values[row])]


def _check_codes(codes: np.ndarray, categories: int) -> None:
    if codes.dtype != np.int32:
        raise InvalidInput(f"codes of categories are {codes.dtype}; they must be int32")
    if codes.size and not (0 <= codes.min() and codes.max() < categories):
        raise InvalidInput(f"a code of a category is out of range; there are {categories}")


def column_or_refuse(name: str, values: Any) -> Column:
    """`Column.of`, with an error that names the column."""
    try:
        return Column.of(values, name=name)
    except TypeError:
        raise InvalidInput(f"{name} is {shown(values)}; it must be a list or an array with one value a run") from None
