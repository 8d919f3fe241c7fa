"""Checks shared by constructors. Each raises `InvalidInput` with one line."""

import copy
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import InvalidInput
from .spectrum import Covariance, symmetric_part
from .text import shown

LARGEST_WHOLE = 2**63 - 1
"""Integers become 64-bit integers sooner or later."""


def whole(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """`value` as an int, if it is an integer from `least` to `most`, and 64 bits can hold it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidInput(f"{name} is {shown(value)}; it must be an integer of at least {least}")
    checked = int(value)
    if most is not None and checked > most:
        raise InvalidInput(f"{name} is {shown(value)}; it must be an integer from {least} to {most}")
    if checked > LARGEST_WHOLE:
        raise InvalidInput(f"{name} is {shown(value)}; it must be an integer below 2**63")
    return checked


def number(name: str, value: Any, *, least: float = -math.inf, most: float = math.inf, above: bool = False) -> float:
    """`value` as a float, if it is finite and in [least, most] (or (least, most] where `above`)."""
    allowed = f"{'above' if above else 'from'} {least:g}" if least > -math.inf else "finite"
    allowed += f" to {most:g}" if most < math.inf else ""
    try:
        checked = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        checked = math.nan
    if not math.isfinite(checked) or checked < least or checked > most or (above and checked == least):
        raise InvalidInput(f"{name} is {shown(value)}; it must be a number, {allowed}")
    return checked


def one_of(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """`value`, if it is among `allowed`."""
    options = list(allowed)
    if not any(type(value) is type(option) and value == option for option in options):
        raise InvalidInput(f"{name} is {shown(value)}; it must be one of {', '.join(map(repr, options))}")
    return value


def numbers_in(name: str, value: Any, *, instead: str = "a list of numbers, or of lists") -> np.ndarray:
    """`value` as an array of float64, if it is one of finite real numbers."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiu":
            raise ValueError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} is {shown(value)}, not an array of numbers; give {instead}") from None
    if not np.all(np.isfinite(array)):
        raise InvalidInput(f"{name} has entries that are not finite; every entry must be a number")
    return array


def number_or_array(name: str, value: Any) -> Any:
    """`value` as it is, if it is a finite number or an array, of any library, of such numbers; a list as an array."""
    array = numbers_in(name, value, instead="a number, or an array of them")
    return array if isinstance(value, list | tuple) else value


def covariance_matrix(name: str, value: Any) -> np.ndarray:
    """`value` as a float64 matrix, not shared, if it is square, finite, symmetric and has no negative eigenvalue."""
    matrix = numbers_in(name, value)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise InvalidInput(f"{name} has shape {matrix.shape}; it must be a square matrix")
    largest = float(np.abs(matrix).max())
    gap = float(np.abs(matrix - matrix.T).max())
    if gap > 1e-10 * largest:
        raise InvalidInput(f"{name} is not symmetric (entries differ by {gap:.2g}); give (A + A.T)/2 if that is meant")
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -1e-10 * largest:
        raise InvalidInput(
            f"{name} has a negative eigenvalue, {lowest:.3g}; a covariance must be positive semi-definite"
        )
    carries = isinstance(value, Covariance) and value.unchanged() is not None
    return copy.deepcopy(value) if carries else symmetric_part(matrix)
