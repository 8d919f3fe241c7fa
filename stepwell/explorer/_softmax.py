"""Several regressions, learned by softmax attention: the run and its limits, as arrays for the page."""

import functools
from typing import Any

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
_EMERGED = 0.5  # the part of its last value at which the prediction of a task has emerged


def is_softmax(built: Built) -> bool:
    return isinstance(built.task, MultiTaskRegression) and isinstance(built.model, SpectralAttention)


def run_view(experiment: Experiment, built: Built, run: xr.Dataset) -> View:
    task, model = built.task, built.model
    assert isinstance(task, MultiTaskRegression) and isinstance(model, SpectralAttention)
    points = points_of(run, model.weight_dims)
    weights, dims, heads = points.weights, np.array(task.dims), model.key.shape[0]
    omega = weights["key"] * weights["query"] * (model.score_scale / dims)
    mu, time = weights["value"] * weights["output"], points.time
    scale = float(np.max(np.asarray(model.omega())))
    # A loss factor of 1: times are t/τ.
    bracket = softmax.emergence_bracket(task, np.full(dims.size, scale), heads=heads, loss_factor=1.0)
    count = experiment.objective.get("sequences") if experiment.objective.kind == "reduced" else None
    finite = (
        "" if count is None else f"predictions are for infinitely many sequences, and the run is on {count} of them"
    )
    return curve_view(experiment, run, points) | {
        "kind": "softmax",
        "omega": small(omega),
        "mu": small(mu),
        "allocation": small(omega * mu),
        "limits": dict(_limits(task.dims, tuple(task.strengths), task.context.counts[0], task.noise_variance, heads)),
        "phases": _phases(time, points.loss),
        "drop_times": bracket.early,
        "drop_times_late": bracket.late,
        "drop_names": [f"task {number}" for number in range(1, dims.size + 1)],
        "table": {"columns": list(COLUMNS), "rows": _rows(task, heads, time, omega, mu, bracket)},
        "remark": "" if count is None else finite,
    }


@functools.lru_cache(maxsize=64)
def _limits(dims: tuple[int, ...], strengths: Any, context: int, noise: Any, heads: int) -> dict[str, float]:
    """Losses to compare with, each the sum over tasks. Most sliders do not change them."""
    task = MultiTaskRegression(dims, np.array(strengths), context, noise_variance=noise)
    made = {"nothing learned": float(task.signals.sum())}
    if heads >= len(task.dims):
        made["flow, one head for each task"] = float(softmax.flow_limit_loss(task).sum())
    else:
        made["best division among the heads"] = float(softmax.best_partition(task, heads).loss.sum())
    made["best single head"] = float(softmax.single_head_optimum(task).loss.sum())
    made["lower bound"] = float(softmax.lower_bound(task, heads).sum())
    made["Bayes risk"] = float(softmax.exact_bayes_risk(task).sum())
    return made


def _phases(time: np.ndarray, loss: np.ndarray) -> list[dict[str, Any]]:
    """Start, end and name of the three phases; none where the curve has no three."""
    three = phases(time, loss) if time.size > 1 and np.isfinite(loss).all() else None
    if three is None:
        return []
    named = {"warm-up": three.warm_up, "emergence": three.emergence, "convergence": three.convergence}
    return [{"name": name, "start": phase.start, "end": phase.end} for name, phase in named.items()]


def _rows(
    task: MultiTaskRegression, heads: int, time: np.ndarray, omega: np.ndarray, mu: np.ndarray, bracket: Any
) -> list[list[Any]]:
    limit = softmax.flow_limit(task) if heads >= len(task.dims) else None
    rows = []
    for number, (dim, strength) in enumerate(zip(task.dims, task.strengths, strict=True)):
        parts = omega[:, :, number] * mu[:, :, number]
        total, last = parts.sum(axis=1), np.abs(parts[-1])
        bounds = float(bracket.early[number]), float(bracket.late[number])
        final = (None, None) if limit is None else (float(limit.omega[number]), float(limit.mu[number]))
        measured = head = share = own_omega = own_mu = None
        if float(last.sum()) >= 0.1:
            at = int(np.argmax(last))
            head, share = at + 1, float(last[at] / last.sum())
            own_omega, own_mu = float(omega[-1, at, number]), float(mu[-1, at, number])
            if total[-1] > 0 and np.isfinite(total).all() and time.size > 1:
                passed = passage_time(time, -total, -_EMERGED * float(total[-1]))
                measured = passed if np.isfinite(passed) else None
        found = measured, head, share, final[0], own_omega, final[1], own_mu
        rows.append([number + 1, dim, strength, *bounds, *found])
    return rows
