"""Names of runs, 16 bytes each, and sets of them as arrays of bytes."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import InvalidInput
from .text import shown

DIGEST = 16
"""Bytes of a name."""


def value_text(value: Any) -> str:
    """The JSON of a plain value."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def digests(common: Mapping[str, Any], varying: Mapping[str, list[str]], runs: int) -> np.ndarray:
    """The names of many runs, (run, 16) bytes.

    `common` are plain values that all have; `varying` has a JSON text for each run, by field. They are the names that
    `stepwell.experiments.name_of` makes of each run.
    """
    columns: list[list[bytes]] = []
    constant = "{"
    for number, name in enumerate(sorted([*common, *varying])):
        constant += f'{"," if number else ""}"{name}":'
        if name in varying:
            pieces = {text: (constant + text).encode() for text in set(varying[name])}  # few are different
            columns.append([pieces[text] for text in varying[name]])
            constant = ""
        else:
            constant += value_text(common[name])
    columns.append([(constant + "}").encode()] * runs)
    made = [hashlib.sha256(b"".join(parts)).digest()[:DIGEST] for parts in zip(*columns, strict=True)]
    return np.frombuffer(b"".join(made), np.uint8).reshape(runs, DIGEST)


def _halves(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each name as two numbers of 64 bits."""
    both = np.ascontiguousarray(names, np.uint8).reshape(-1, DIGEST).view(np.uint64)
    return both[:, 0], both[:, 1]


def check_names(names: np.ndarray | None) -> None:
    """Refuse what are not names, unless it is None."""
    if names is not None and (names.dtype != np.uint8 or names.ndim != 2 or names.shape[1] != DIGEST):
        raise InvalidInput(f"names are {shown(names)} of {names.dtype}; they must be (run, {DIGEST}) of uint8")


def _search(names: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each of `names` among `known`, each (n, 16) bytes, and whether it is there."""
    first, second = _halves(known)
    asked, rest = _halves(names)
    place = np.zeros(len(asked), np.intp)
    if not len(first):
        return place, np.zeros(len(asked), bool)
    order = np.argsort(first, kind="stable")
    if np.any(first[order[1:]] == first[order[:-1]]):
        order = np.lexsort((second, first))
    first, second = first[order], second[order]
    turn = np.argsort(asked)  # in order, neighbors are found in cache
    place[turn] = np.minimum(np.searchsorted(first, asked[turn]), len(order) - 1)
    # First halves differ nearly always; where they do not, the second decide.
    later = (first[place] == asked) & (second[place] < rest) & (place < len(order) - 1)
    while later.any():
        place += later
        later &= (first[place] == asked) & (second[place] < rest) & (place < len(order) - 1)
    return order[place], (first[place] == asked) & (second[place] == rest)


def is_among(names: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of `names` are among `known`, each (n, 16) bytes."""
    return _search(names, known)[1]


def places_of(names: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The place of each name among `known`, where all of them are."""
    return _search(names, known)[0]


def first_of_each(names: np.ndarray) -> np.ndarray:
    """Which names were not there before, counted from the beginning."""
    first, second = _halves(names)
    ordered, keep = np.sort(first), np.ones(len(first), bool)
    unclear = np.flatnonzero(np.isin(first, ordered[1:][ordered[1:] == ordered[:-1]]))
    order = unclear[np.lexsort((second[unclear], first[unclear]))]  # which keeps the order of equal names
    before, after = order[:-1], order[1:]
    keep[after[(first[before] == first[after]) & (second[before] == second[after])]] = False
    return keep


def hexadecimal(names: np.ndarray) -> list[str]:
    """Each name as 32 digits."""
    text = np.ascontiguousarray(names, np.uint8).tobytes().hex()
    return [text[start : start + 2 * DIGEST] for start in range(0, len(text), 2 * DIGEST)]
