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


def is_among(names: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of `names` are among `known`, each (n, 16) bytes.

    The first halves are compared, which differ nearly always; the second decide, one by one where first halves repeat.
    """
    first, second = _halves(known)
    asked, rest = _halves(names)
    if not len(first):
        return np.zeros(len(asked), bool)
    order = np.argsort(first, kind="stable")
    first, second = first[order], second[order]
    turn = np.argsort(asked)  # in order, neighbors are found in cache
    place = np.empty(len(asked), np.intp)
    place[turn] = np.searchsorted(first, asked[turn])
    place[place == len(first)] = 0
    same = first[place] == asked
    among = same & (second[place] == rest)
    repeated = first[1:][first[1:] == first[:-1]]
    if len(repeated):
        unclear = np.flatnonzero(same & ~among & np.isin(asked, repeated))
        pairs = np.isin(first, repeated)
        exact = set(zip(first[pairs].tolist(), second[pairs].tolist(), strict=True))
        for number in unclear.tolist():
            among[number] = (int(asked[number]), int(rest[number])) in exact
    return among


def places_of(names: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The place of each name among `known`, where all of them are."""
    first, second = _halves(known)
    asked, rest = _halves(names)
    order = np.argsort(first, kind="stable")
    place = order[np.minimum(np.searchsorted(first[order], asked), max(len(order) - 1, 0))] if len(order) else order
    wrong = np.flatnonzero((first[place] != asked) | (second[place] != rest))
    if len(wrong):  # first halves that repeat
        exact = {pair: number for number, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))}
        for number in wrong.tolist():
            place[number] = exact[int(asked[number]), int(rest[number])]
    return place


def first_of_each(names: np.ndarray) -> np.ndarray:
    """Which names were not there before, counted from the beginning."""
    first, second = _halves(names)
    keep = np.ones(len(first), bool)
    ordered = np.sort(first)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        seen: set[tuple[int, int]] = set()
        for number in np.flatnonzero(np.isin(first, repeated)).tolist():
            pair = int(first[number]), int(second[number])
            keep[number] = pair not in seen
            seen.add(pair)
    return keep


def hexadecimal(names: np.ndarray) -> list[str]:
    """Each name as 32 digits."""
    text = np.ascontiguousarray(names, np.uint8).tobytes().hex()
    return [text[start : start + 2 * DIGEST] for start in range(0, len(text), 2 * DIGEST)]
