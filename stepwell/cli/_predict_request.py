"""What was typed after `stepwell predict`, checked and handed to its theory. Mistakes need no theory."""

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stepwell import _check, _kinds
from stepwell._description import LARGEST, described
from stepwell._errors import InvalidInput
from stepwell._kinds import KINDS
from stepwell._task_flags import Description

_START = {"heads": None, "rank": 1, "init": 1e-3, "seed": 0, "balanced": False}
"""What describes initial weights of linear attention, and means nothing without a model."""

_SOFTMAX = {"heads": None, "init": 1e-3, "loss_factor": 2.0, "embedding": None, "convention": "per-coordinate"}
"""What describes softmax attention beside its task."""

_ONLY = {
    "--eigenvalues": ("model", "rank", "seed", "balanced"),
    "--dims": ("loss_factor", "embedding"),
}
"""Flags that go with one form of the task only."""


def predicted(arguments: argparse.Namespace) -> tuple[dict[str, Any], Callable[[dict[str, Any]], str]]:
    """The predictions as a JSON document, and the function that formats them as tables."""
    task = described(arguments)
    if task.eigenvalues is None and task.dims is None:
        raise InvalidInput(
            "a task is required; give --eigenvalues, --spectrum, --dims or --task; see stepwell predict --help"
        )
    softmax = task.dims is not None
    from_file = hasattr(arguments, "task")
    _require_one_form("--eigenvalues" if softmax else "--dims", arguments, drop=from_file)
    return (_softmax if softmax else _linear)(arguments, task)


def _linear(arguments: argparse.Namespace, task: Description):
    assert task.eigenvalues is not None
    dim = len(task.eigenvalues)
    start = _start(arguments, dim)

    from stepwell.theory import Lengths, Regression

    from ._predict_linear import predict_linear, tables

    omega = task.task_eigenvalues or (1.0,) * dim
    described = Regression(
        np.diag(task.eigenvalues), np.diag(omega), task.noise, Lengths.uniform(list(task.context or (31,)))
    )
    return predict_linear(described, getattr(arguments, "model", None), start), tables


def _softmax(arguments: argparse.Namespace, task: Description):
    options = {**_SOFTMAX, **_given(arguments, _SOFTMAX)}
    dims, strengths = task.dims, task.strengths
    assert dims is not None and strengths is not None
    options["heads"] = _check.whole("--heads", len(dims) if options["heads"] is None else options["heads"])
    options["embedding"] = _check.whole(
        "--embedding", sum(dims) if options["embedding"] is None else options["embedding"]
    )
    for name in ("init", "loss_factor"):
        _check.number(f"--{name.replace('_', '-')}", options[name], least=1 / LARGEST, most=LARGEST)

    from stepwell.theory import Lengths, MultiRegression

    from ._predict_softmax import predict_softmax, tables

    described = MultiRegression(dims, strengths, task.noise, Lengths.uniform(list(task.context or (100,))))
    return predict_softmax(described, **options), tables


def _require_one_form(other: str, arguments: argparse.Namespace, *, drop: bool) -> None:
    """Refuse flags of the other form; those of a file, which describes a run for `stepwell train`, are dropped."""
    for misplaced in _given(arguments, _ONLY[other]):
        if not drop:
            raise InvalidInput(f"--{misplaced.replace('_', '-')} is for {other} only; leave it out")
        delattr(arguments, misplaced)


def _given(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Those of the flags that were given: flags without a default are absent otherwise."""
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


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
    _check.number("--init", start["init"], least=1 / LARGEST, most=LARGEST)
    if start["balanced"] and start.get("rank", 1) > dim:
        raise InvalidInput(f"--balanced needs a --rank of at most the dimension, {dim}")
    return start
