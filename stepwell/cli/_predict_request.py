"""What was typed after `stepwell predict`, checked and handed to its theory. Mistakes need no theory."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stepwell import _check, _kinds
from stepwell._errors import InvalidInput
from stepwell._kinds import KINDS

_START = {"heads": None, "rank": 1, "init": 1e-3, "seed": 0, "balanced": False}
"""What describes initial weights of linear attention, and means nothing without a model."""

_SOFTMAX = {"heads": None, "init": 1e-3, "loss_factor": 2.0, "embedding": None, "convention": "per-coordinate"}
"""What describes softmax attention beside its task."""

_ONLY = {
    "--eigenvalues": ("task_eigenvalues", "model", "rank", "seed", "balanced"),
    "--dims": ("strengths", "convention", "loss_factor", "embedding"),
}
"""Flags that go with one form of the task only."""

_LARGEST = 1e50
"""The largest eigenvalue or variance allowed, and one over the least: their fifth powers are still numbers."""


def predicted(arguments: argparse.Namespace) -> tuple[dict[str, Any], Callable[[dict[str, Any]], str]]:
    """The predictions as a JSON document, and the function that formats them as tables."""
    softmax = arguments.dims is not None
    _require_one_form("--eigenvalues" if softmax else "--dims", arguments)
    return (_softmax if softmax else _linear)(arguments)


def _linear(arguments: argparse.Namespace):
    task = _linear_task(arguments)
    start = _start(arguments, len(arguments.eigenvalues))

    from stepwell.theory import Lengths, Regression

    from ._predict_linear import predict_linear, tables

    variances, task_variances, context, noise = task
    described = Regression(np.diag(variances), np.diag(task_variances), noise, Lengths.uniform(context))
    return predict_linear(described, getattr(arguments, "model", None), start), tables


def _softmax(arguments: argparse.Namespace):
    context = _context(arguments, 100)
    if len(context) > 1:
        raise InvalidInput(
            f"--context has {len(context)} lengths; the theory of softmax attention is for one, so give one"
        )
    options = {**_SOFTMAX, **_given(arguments, _SOFTMAX)}
    dims = [_check.whole("--dims", dim) for dim in arguments.dims]
    strengths = [
        _check.number("--strengths", value, least=1 / _LARGEST, most=_LARGEST)
        for value in getattr(arguments, "strengths", [1.0])
    ]
    if len(strengths) not in (1, len(dims)):
        raise InvalidInput(
            f"there are {len(dims)} --dims and {len(strengths)} --strengths; give one for all, or one for each"
        )
    options["heads"] = _check.whole("--heads", len(dims) if options["heads"] is None else options["heads"])
    options["embedding"] = _check.whole(
        "--embedding", sum(dims) if options["embedding"] is None else options["embedding"]
    )
    for name in ("init", "loss_factor"):
        _check.number(f"--{name.replace('_', '-')}", options[name], least=1 / _LARGEST, most=_LARGEST)

    from stepwell.theory import Lengths, MultiRegression

    from ._predict_softmax import predict_softmax, tables

    each = strengths * len(dims) if len(strengths) == 1 else strengths
    if options["convention"] == "total":
        each = [total / dim for total, dim in zip(each, dims, strict=True)]
    task = MultiRegression(tuple(dims), tuple(each), _noise(arguments), Lengths.uniform(context))
    return predict_softmax(task, **options), tables


def _require_one_form(other: str, arguments: argparse.Namespace) -> None:
    misplaced = next(iter(_given(arguments, _ONLY[other])), None)
    if misplaced is not None:
        raise InvalidInput(f"--{misplaced.replace('_', '-')} is for {other} only; leave it out")


def _given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Those of the flags that were given: flags without a default are absent otherwise."""
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def _context(arguments: argparse.Namespace, default: int) -> list[int]:
    return [_check.whole("--context", count) for count in arguments.context or [default]]


def _noise(arguments: argparse.Namespace) -> float:
    return _check.number("--noise", arguments.noise, least=0.0, most=_LARGEST)


def _linear_task(arguments: argparse.Namespace) -> tuple[list[float], list[float], list[int], float]:
    lam = [_check.number("--eigenvalues", value, least=1 / _LARGEST, most=_LARGEST) for value in arguments.eigenvalues]
    given = getattr(arguments, "task_eigenvalues", [1.0] * len(lam))
    omega = [_check.number("--task-eigenvalues", value, least=0.0, most=_LARGEST) for value in given]
    if len(omega) != len(lam):
        raise InvalidInput(
            f"there are {len(lam)} --eigenvalues and {len(omega)} --task-eigenvalues; give the same number of both"
        )
    if not any(omega):
        raise InvalidInput("--task-eigenvalues are all 0, so there is nothing to learn; give one above 0")
    return lam, omega, _context(arguments, 31), _noise(arguments)


def _start(arguments: argparse.Namespace, dim: int) -> dict[str, Any]:
    given = _given(arguments, _START)
    if not hasattr(arguments, "model"):
        if given:
            allowed = _kinds.listed(_kinds.names(predicted=True))
            raise InvalidInput(
                f"--{next(iter(given))} describes initial weights, which need a model; add --model {allowed}"
            )
        return {}
    start = {**_START, "heads": dim, **given}
    kind = KINDS[arguments.model]
    if not kind.has_rank and start.pop("rank") != 1:
        ranked = _kinds.listed(name for name in _kinds.names(predicted=True) if KINDS[name].has_rank)
        raise InvalidInput(
            f"--rank is for --model {ranked}; the {kind.description} key and query of {kind.name} have full rank"
        )
    for name in ("heads", "rank"):
        if name in start:
            _check.whole(f"--{name}", start[name])
    _check.whole("--seed", start["seed"], least=0)
    if start["seed"] >= 2**32:
        raise InvalidInput(f"--seed is {start['seed']}; it must be below 2**32")
    _check.number("--init", start["init"], least=1 / _LARGEST, most=_LARGEST)
    if start["balanced"] and start.get("rank", 1) > dim:
        raise InvalidInput(f"--balanced needs a --rank of at most the dimension, {dim}")
    return start
