"""Several regressions, learned by softmax attention: the run and its limits, as arrays for the page."""

import functools
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from stepwell.analysis import passage_time, phases
from stepwell.experiments import Built, Experiment
from stepwell.models import SpectralAttention
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax

from ._linear import curve_view, points_of, small
from ._view import View

COLUMNS = (
    "task",
    "dimension",
    "strength",
    "t/τ from",
    "t/τ to",
    "measured t/τ",
    "head",
    "share",
    "ω in the limit",
    "measured ω",
    "μ in the limit",
    "measured μ",
)
_NEGATIVE = 1e-3
"""Of the largest μ, the size from which on one below zero is said."""
_EMERGED = 0.5
"""The part of its last value at which the prediction of a task has emerged."""


def is_softmax(built: Built) -> bool:
    """Whether a run has the figures of several regressions."""
    return isinstance(built.task, MultiTaskRegression) and isinstance(built.model, SpectralAttention)


def run_view(experiment: Experiment, built: Built, run: xr.Dataset) -> View:
    """What was recorded, and what theory says of it."""
    task, model = built.task, built.model
    assert isinstance(task, MultiTaskRegression) and isinstance(model, SpectralAttention)
    points = points_of(run, model.weight_dims)
    weights, dims, heads = points.weights, np.array(task.dims), model.key.shape[0]
    omega = weights["key"] * weights["query"] * (model.score_scale / dims)
    mu, time = weights["value"] * weights["output"], points.time
    scale = float(np.max(np.asarray(model.omega())))
    # A loss factor of 1: times are t/τ.
    bracket = softmax.emergence_bracket(task, np.full(dims.size, scale), heads=heads, loss_factor=1.0)
    return curve_view(experiment, run, points) | {
        "kind": "softmax",
        "omega": small(omega),
        "mu": small(mu),
        "allocation": small(omega * mu),
        "limits": dict(_limits(_numbers_of(task), heads)),
        "phases": _phases(time, points.loss),
        "drop_times": bracket.early,
        "drop_times_late": bracket.late,
        "drop_names": [f"task {number}" for number in range(1, dims.size + 1)],
        "table": {"columns": list(COLUMNS), "rows": _rows(task, heads, time, omega, mu, bracket)},
        "remark": "; ".join(filter(None, (_balance_remark(time, mu), _finite_remark(experiment)))),
    }


def _finite_remark(experiment: Experiment) -> str:
    if experiment.objective.kind != "reduced":
        return ""
    count = experiment.objective.sequences
    return f"predictions are for infinitely many sequences, and the run is on {count} of them"


def _numbers_of(task: MultiTaskRegression) -> "_Limited":
    strengths = tuple(float(one) for one in task.strengths)
    return _Limited(task.dims, strengths, task.context.counts[0], float(task.noise_variance))


class _Limited(NamedTuple):
    """The numbers of a task that its limits depend on."""

    dims: tuple[int, ...]
    strengths: tuple[float, ...]
    context: int
    noise: float


@functools.lru_cache(maxsize=64)
def _limits(numbers: _Limited, heads: int) -> dict[str, float]:
    """Losses to compare with, each the sum over tasks. Most sliders do not change them."""
    task = MultiTaskRegression(numbers.dims, np.array(numbers.strengths), numbers.context, noise_variance=numbers.noise)
    made = {"nothing learned": float(task.signals.sum())}
    if heads >= len(task.dims):
        made["flow, one head for each task"] = float(softmax.flow_limit_loss(task).sum())
    else:
        made["best division among the heads"] = float(softmax.best_partition(task, heads).loss.sum())
    made["best single head"] = float(softmax.single_head_optimum(task).loss.sum())
    made["lower bound"] = float(softmax.lower_bound(task, heads).sum())
    made["Bayes risk"] = float(softmax.bayes_risk(task).sum())
    return made


def _phases(time: np.ndarray, loss: np.ndarray) -> list[dict[str, Any]]:
    """Start, end and name of the three phases; none where the curve has no three."""
    finite = np.isfinite(loss)
    if time.size < 2 or not finite.all():
        return []
    three = phases(time, loss)
    if three is None:
        return []
    named = {"warm-up": three.warm_up, "emergence": three.emergence, "convergence": three.convergence}
    return [{"name": name, "start": phase.start, "end": phase.end} for name, phase in named.items()]


def _balance_remark(time: np.ndarray, mu: np.ndarray) -> str:
    """Where errors of the solver have turned the sign of a μ; empty where none has.

    Every μ begins as a square, as value and output weight are equal. The flow keeps them so, and no μ changes its sign;
    but a difference between them grows where a head has no task, and a solver's error is one (docs/differences.md).
    """
    below = (mu < -_NEGATIVE * np.abs(mu).max()).any(axis=(1, 2))
    if below[0] or not below.any():
        return ""
    return (
        f"after t/τ = {time[np.argmax(below)]:.4g} the run is not the flow from these weights, in which no μ is below "
        "zero: errors of the solver have grown, and the limits do not apply"
    )


def _rows(
    task: MultiTaskRegression, heads: int, time: np.ndarray, omega: np.ndarray, mu: np.ndarray, bracket: Any
) -> list[list[Any]]:
    limit = softmax.flow_limit(task) if heads >= len(task.dims) else None
    rows = []
    for number, (dim, strength) in enumerate(zip(task.dims, task.strengths, strict=True)):
        parts = omega[:, :, number] * mu[:, :, number]
        total, last = parts.sum(axis=1), np.abs(parts[-1])
        served = float(last.sum()) >= 0.1
        head = int(np.argmax(last)) if served else None
        measured = None
        if served and total[-1] > 0 and np.isfinite(total).all() and time.size > 1:
            passed = passage_time(time, -total, -_EMERGED * float(total[-1]))
            measured = passed if np.isfinite(passed) else None
        rows.append(
            [
                number + 1,
                dim,
                strength,
                float(bracket.early[number]),
                float(bracket.late[number]),
                measured,
                None if head is None else head + 1,
                None if head is None else float(last[head] / last.sum()),
                None if limit is None else float(limit.omega[number]),
                None if head is None else float(omega[-1, head, number]),
                None if limit is None else float(limit.mu[number]),
                None if head is None else float(mu[-1, head, number]),
            ]
        )
    return rows
