"""What the flags of a task mean, checked: the other half of `_task_flags`."""

import argparse
from collections.abc import Sequence

from . import _check
from ._errors import InvalidInput
from ._task_flags import CONVENTIONS, SPECTRA, Description
from ._text import shown

LARGEST = 1e50
"""The largest eigenvalue or variance allowed, and one over the least: their fifth powers are still numbers."""
_MOST = 10**6
"""Seeds, or eigenvalues by name, at the most."""


def described(arguments: argparse.Namespace) -> Description:
    """What the flags of `add_task_flags` say, checked."""
    dims = getattr(arguments, "dims", None)
    return _several(arguments, dims) if dims is not None else _one(arguments)


def _one(arguments: argparse.Namespace) -> Description:
    for name in ("strengths", "convention"):
        if hasattr(arguments, name):
            raise InvalidInput(f"--{name} is for --dims only; leave it out")
    lam = _eigenvalues(arguments)
    omega = getattr(arguments, "task_eigenvalues", None)
    if omega is not None:
        omega = tuple(_check.number("--task-eigenvalues", value, least=0.0, most=LARGEST) for value in omega)
        if lam is not None and len(omega) != len(lam):
            raise InvalidInput(
                f"there are {len(lam)} --eigenvalues and {len(omega)} --task-eigenvalues; give the same number of both"
            )
        if not any(omega):
            raise InvalidInput("--task-eigenvalues are all 0, so there is nothing to learn; give one above 0")
        omega = None if all(value == 1.0 for value in omega) else omega
    return Description(lam, omega, _noise(arguments), _context(arguments))


def _several(arguments: argparse.Namespace, given: Sequence[int]) -> Description:
    for name in ("task_eigenvalues", "dim"):
        if hasattr(arguments, name):
            raise InvalidInput(f"--{name.replace('_', '-')} is for --eigenvalues only; leave it out")
    context = _context(arguments)
    if context is not None and len(context) > 1:
        raise InvalidInput(
            f"--context has {len(context)} lengths; the theory of softmax attention is for one, so give one"
        )
    dims = tuple(_check.whole("--dims", dim) for dim in given)
    strengths = [
        _check.number("--strengths", value, least=1 / LARGEST, most=LARGEST)
        for value in getattr(arguments, "strengths", [1.0])
    ]
    if len(strengths) not in (1, len(dims)):
        raise InvalidInput(
            f"there are {len(dims)} --dims and {len(strengths)} --strengths; give one for all, or one for each"
        )
    each = strengths * len(dims) if len(strengths) == 1 else strengths
    if getattr(arguments, "convention", CONVENTIONS[0]) == "total":
        each = [total / dim for total, dim in zip(each, dims, strict=True)]
    return Description(None, None, _noise(arguments), context, dims, tuple(each))


def _context(arguments: argparse.Namespace) -> tuple[int, ...] | None:
    given = getattr(arguments, "context", None)
    if given is None:
        return None
    counts = tuple(_check.whole("--context", count) for count in given)
    if len(set(counts)) < len(counts):
        raise InvalidInput(f"--context has {' '.join(map(str, counts))}, one of them twice; give each length once")
    return counts


def _noise(arguments: argparse.Namespace) -> float:
    return _check.number("--noise", getattr(arguments, "noise", 0.0), least=0.0, most=LARGEST)


def _eigenvalues(arguments: argparse.Namespace) -> tuple[float, ...] | None:
    given, name = getattr(arguments, "eigenvalues", None), getattr(arguments, "spectrum", None)
    if name is not None:
        dim = getattr(arguments, "dim", None)
        if dim is None:
            raise InvalidInput(f"--spectrum {shown(name)} needs a dimension; add --dim, for instance --dim 4")
        return spectrum(name, dim)
    if given is None:
        return None
    if hasattr(arguments, "dim") and arguments.dim != len(given):
        raise InvalidInput(f"there are {len(given)} --eigenvalues and --dim is {shown(arguments.dim)}; leave out --dim")
    return tuple(_check.number("--eigenvalues", value, least=1 / LARGEST, most=LARGEST) for value in given)


def spectrum(name: str, dim: int) -> tuple[float, ...]:
    r"""Eigenvalues of sum 1 by name, falling.

    white: $1/D$; power:a: $\lambda_d \propto d^{-a}$; spiked:r,k: the first k are r times the others; published:
    $\lambda_d \propto D + 1 - d$.
    """
    kind, colon, rest = name.partition(":")
    dim = _check.whole("--dim", dim)
    if dim > _MOST:
        raise InvalidInput(f"--dim is {dim}; a spectrum by name has at most {_MOST} eigenvalues")
    try:
        numbers = [float(part) for part in rest.split(",")] if colon else []
    except ValueError:
        numbers = [0.0] * 3  # more than any has
    wanted = {"white": (0,), "published": (0,), "power": (1,), "spiked": (1, 2)}.get(kind, ())
    if len(numbers) not in wanted:
        raise InvalidInput(f"--spectrum is {shown(name)}; it must be {SPECTRA}, for instance power:1.5")
    if kind == "white":
        values = [1.0] * dim
    elif kind == "published":
        values = [float(dim - d) for d in range(dim)]
    elif kind == "power":
        exponent = _check.number("the exponent of --spectrum power", numbers[0], least=0.0, most=8.0)
        values = [(d + 1.0) ** -exponent for d in range(dim)]
    else:
        ratio = _check.number("the ratio of --spectrum spiked", numbers[0], least=1.0, most=1e12)
        count = 1.0 if len(numbers) == 1 else numbers[1]
        if count not in range(1, dim):
            raise InvalidInput(f"--spectrum {shown(name)} has {count:g} spikes; give from 1 to {dim - 1}, below --dim")
        values = [ratio] * int(count) + [1.0] * (dim - int(count))
    total = sum(values)
    return tuple(value / total for value in values)


def seeds_of(words: Sequence[str], first: int) -> tuple[int, ...]:
    """Seeds from words: `20`, so many from the first on; `20:40`, from 20 to 39; several words, these."""
    try:
        if len(words) == 1 and ":" in words[0]:
            begin, end = (int(part) for part in words[0].split(":"))
        elif len(words) == 1:
            begin, end = first, first + int(words[0])
        else:
            begin, end = 0, -1
        listed = tuple(int(word) for word in words) if len(words) > 1 else ()
    except ValueError:
        raise InvalidInput(
            f"--seeds is {shown(' '.join(words))}; write how many (20), a range (20:40) or each (3 5 8)"
        ) from None
    if not listed:
        if not 0 < end - begin <= _MOST:
            raise InvalidInput(f"--seeds {words[0]} are {max(end - begin, 0)} seeds; give from 1 to {_MOST}")
        listed = tuple(range(begin, end))
    for seed in listed:
        if not 0 <= seed < 2**32:
            raise InvalidInput(f"--seeds has {seed}; a seed must be from 0 to 2**32 - 1")
    if len(set(listed)) < len(listed):
        raise InvalidInput(f"--seeds has {shown(' '.join(words))}, one of them twice; give each once")
    return listed
