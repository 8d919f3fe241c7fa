"""Plain values: those of a configuration, and columns of them over many runs.

A configuration is the flat canonical form of an experiment. It goes from names such as `model.heads` to a boolean, an
integer, a number, a string, None, or a list of these. Its text is JSON with sorted keys and without spaces, and the
name of the run is the beginning of the SHA-256 of that text (`stepwell.experiments.name_of`): who asks for the same run
finds it. 1, 1.0 and True are different values here. A store needs no kind to be registered: what it holds are values.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell._util.checks import LARGEST_WHOLE
from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import value_text
from stepwell._util.text import shown

Value = bool | int | float | str | None | list[bool | int | float | str]

RESERVED = frozenset({"name", "run", "shard", "digest", "digest_byte"})  # names that a store uses itself
_FIELD = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63})?")


def check_name(kind: str, name: Any) -> str:
    """`name`, if a field or a scalar may have it."""
    if not isinstance(name, str) or _FIELD.fullmatch(name) is None or name in RESERVED:
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a {kind}; take up to 64 of a-z, 0-9 and _, a letter first, with a "
            f"section and a dot before it if need be, and none of {', '.join(sorted(RESERVED))}"
        )
    return name


def plain(name: str, value: Any) -> Value:
    """`value` as a plain one, if a configuration may hold it; numbers of NumPy become Python's, arrays lists."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        entries = [one.item() if isinstance(one, np.generic) else one for one in value]
        if not all(isinstance(one, bool | int | float | str) for one in entries):
            raise InvalidInput(f"{name} is {shown(value)}; a list may hold numbers, strings and booleans only")
        return [plain(name, one) for one in entries]  # pyright: ignore[reportReturnType]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > LARGEST_WHOLE:
            raise InvalidInput(f"{name} is {shown(value)}; integers must be below 2**63")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{name} is {value!r}; numbers must be finite")
        return float(value)
    if isinstance(value, str) and value.isprintable():
        return str(value)
    raise InvalidInput(
        f"{name} is {shown(value)}; it must be a boolean, a number, a printable string, None or a list of these"
    )


def configuration_text(configuration: Mapping[str, Any]) -> str:
    """The canonical text of a configuration, if it is one."""
    values = {check_name("field", name): plain(name, value) for name, value in configuration.items()}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, eq=False)
class Column:
    """Values of one field or scalar, one for each run.

    **Arguments:**

    - `values`: bool, int64 or float64; or int32, codes of `categories`.
    - `categories`: None, or what the codes stand for: strings, None, lists, or a mixture of any plain values.
    """

    values: np.ndarray
    categories: tuple[Value, ...] | None = None

    def __post_init__(self) -> None:
        values, categories = self.values, self.categories
        if values.ndim != 1:
            raise InvalidInput(f"a column has shape {values.shape}; it must have one axis, run")
        if categories is None and values.dtype not in (np.bool_, np.int64, np.float64):
            raise InvalidInput(f"a column is of {values.dtype}; it must be bool, int64 or float64")
        if categories is not None and (
            values.dtype != np.int32 or (values.size and not 0 <= values.min() <= values.max() < len(categories))
        ):
            raise InvalidInput(f"codes of categories must be int32 from 0 on, below {len(categories)}")

    @classmethod
    def of(cls, values: Any, *, name: str = "a column") -> "Column":
        """Return a column of any values, of the narrowest kind that keeps every one as it is."""
        if isinstance(values, Column):
            return values
        if isinstance(values, np.ndarray):
            if values.ndim == 1 and values.dtype.kind in "biuf" and values.dtype.itemsize <= 8:
                cast = values.astype({"b": np.bool_, "f": np.float64}.get(values.dtype.kind, np.int64))
                if values.dtype.kind != "u" or (cast >= 0).all():
                    return cls(cast)
            values = values.tolist()
        try:
            entries = [one.item() if isinstance(one, np.generic) else one for one in values]
        except TypeError:
            raise InvalidInput(
                f"{name} is {shown(values)}; it must be a list or an array with one value a run"
            ) from None
        kinds = {type(one) for one in entries}
        if kinds == {bool} or kinds == {float} or (kinds == {int} and max(map(abs, entries)) <= LARGEST_WHOLE):
            return cls(np.array(entries))
        categories: dict[str, Value] = {}
        texts = []
        for one in entries:
            value = plain(name, one)
            texts.append(value_text(value))
            categories.setdefault(texts[-1], value)
        codes = {text: code for code, text in enumerate(categories)}
        return cls(np.array([codes[text] for text in texts], np.int32), tuple(categories.values()))

    @classmethod
    def repeated(cls, value: Value, count: int) -> "Column":
        """Return a column of one value."""
        if isinstance(value, int | float):
            return cls(np.full(count, value))
        return cls(np.zeros(count, np.int32), (value,))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> "Column":
        return Column(self.values[rows], self.categories)

    def check_finite(self, name: str) -> None:
        """Refuse a number that no configuration may hold."""
        if self.values.dtype.kind == "f" and not np.isfinite(self.values).all():
            raise InvalidInput(f"the field {name} is not finite in every run; only scalars may be NaN or infinite")

    def texts(self) -> list[str]:
        """Return the JSON of each value, as in a canonical configuration. Numbers must be finite."""
        if self.categories is not None:
            known = list(map(value_text, self.categories))
            return [known[code] for code in self.values.tolist()]
        if self.values.dtype.kind == "b":
            return ["true" if one else "false" for one in self.values.tolist()]
        return list(map(repr, self.values.tolist()))

    def decoded(self) -> np.ndarray:
        """Return the values themselves: numbers as they are, categories as objects."""
        if self.categories is None:
            return self.values
        known = np.empty(len(self.categories), object)
        known[:] = [*self.categories]
        return known[self.values]

    def value(self, row: int) -> Value:
        """Return the value of one run, as Python has it; a scalar may be NaN."""
        return self.values[row].item() if self.categories is None else self.categories[int(self.values[row])]

    def as_categories(self) -> "Column":
        """Return the same values as codes of categories; None for numbers that JSON does not have."""
        if self.categories is not None:
            return self
        finite = np.isfinite(self.values)
        distinct, codes = np.unique(self.values[finite], return_inverse=True)
        places = np.full(len(self), len(distinct), np.int32)
        places[finite] = codes
        return Column(places, (*distinct.tolist(), *(() if finite.all() else (None,))))

    def labels(self) -> np.ndarray:
        """Return the values as numbers or strings; of categories that are not all strings the JSON."""
        if self.categories is None:
            return self.values
        used = np.unique(self.values)
        texts = [self.categories[code] for code in used.tolist()]
        if not all(isinstance(text, str) for text in texts):
            texts = ["" if text is None else value_text(text) for text in texts]
        return np.array(texts or [""], str)[np.searchsorted(used, self.values)]
