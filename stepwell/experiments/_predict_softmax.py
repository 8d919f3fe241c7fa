"""What the theory of softmax attention says about several regressions, as one document and as tables."""

from typing import Any

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import TIME_UNIT
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax

from ._predict_linear import as_loss, counted

INFERRED = (
    "the full text of arXiv 2402.19442 could not be consulted: that strengths are those of a coordinate, the factor of "
    "the loss and the constant of the lower bound are inferred from its captions"
)

_COLUMNS = (
    ("gf_loss", "flow"),
    ("gf_exact_loss", "flow, exact"),
    ("shared_loss", "shared"),
    ("single_head_loss", "one head"),
    ("lower_bound", "lower bound"),
    ("mmse", "Bayes"),
)
_OF_THE_SUM = {"lower_bound"}
"""What bounds the sum over tasks and not each: a task may end below its own part of it."""


def predict_softmax(task: MultiTaskRegression, *, heads: int, scale: float) -> dict[str, Any]:
    """The JSON document. Losses are of the target without noise, in total and for each task; times are t/τ."""
    dims, context = list(task.dims), task.context.counts[0]
    limit = softmax.flow_limit(task)
    one_each = heads >= len(dims)
    exact = softmax.exact_loss(task, *map(softmax.as_heads, limit)) if one_each else None
    # The paper's t/τ is the time of dW/dt = -1/2 dL/dW: a loss factor of 1.
    emerges = softmax.emergence_bracket(task, np.full(len(dims), scale), heads=heads, loss_factor=1.0)
    return {
        "task": {
            "dims": dims,
            "strengths": list(task.strengths),
            "signals": task.signals.tolist(),
            "context": context,
            "noise_variance": task.noise_variance,
        },
        "heads": heads,
        "tasks_count_from": 1,
        "gf_loss": _summed(softmax.flow_limit_loss(task) if one_each else None),
        "gf_exact_loss": _summed(exact),
        "gf_reason": None if one_each else _too_few(heads, len(dims)),
        "shared_loss": None if one_each else _shared(task, heads),
        "single_head_loss": _summed(softmax.single_head_optimum(task).loss),
        "lower_bound": {"total": float(softmax.lower_bound(task, heads).sum())},
        "mmse": _summed(softmax.bayes_risk(task)),
        "limits": {"omega": limit.omega.tolist(), "mu": limit.mu.tolist()} if one_each else None,
        "emergence_times": emerges.early.tolist(),
        "emergence_times_with_equal_heads": emerges.late.tolist(),
        "conventions": {
            "strengths": "variance of a coordinate of the task vectors",
            "scale": scale,
            "initialization": "omega of the winning head is the scale, mu/omega is on the ray of the warm-up",
            "losses": "sums over tasks of squared errors without the noise of the target; to leading order in 1/L and "
            "1/d, but gf_exact_loss at finite L and d, and mmse for large d and L",
            "lower_bound": "of the sum over tasks, not of each; weights of any sign; "
            "the budget is 1/e for one head, else min(heads - 1, tasks), found "
            "numerically",
            "inferred": INFERRED,
        },
        "time_unit": TIME_UNIT,
    }


def tables(predictions: dict[str, Any]) -> str:
    task, shown = predictions["task"], [column for column in _COLUMNS if predictions[column[0]] is not None]
    noise = f", noise variance {task['noise_variance']:g}" if task["noise_variance"] else ""
    heads = counted(predictions["heads"], "head")
    lines = [
        f"softmax attention, {heads}, {counted(len(task['dims']), 'regression')}, context {task['context']}{noise}"
    ]
    lines += ["", "losses", "task  dim   strength      signal" + "".join(f"  {name:>11}" for _, name in shown)]
    for i, (dim, strength, signal) in enumerate(zip(task["dims"], task["strengths"], task["signals"], strict=True)):
        losses = "".join(f"  {_of_task(predictions, key, i):>11}" for key, _ in shown)
        lines.append(f"{i + 1:>4}  {dim:>3}  {strength:>9.4g}  {as_loss(signal):>10}{losses}")
    totals = "".join(f"  {as_loss(predictions[key]['total']):>11}" for key, _ in shown)
    lines.append(f"{'all':>4}  {sum(task['dims']):>3}  {'':>9}  {as_loss(sum(task['signals'])):>10}{totals}")
    limits = predictions["limits"]
    lines += ["", "weights in the end, and bounds on when they emerge: one effective head, H effective heads"]
    lines += ["task       omega          mu  t/τ, lower  t/τ, upper"]
    for i, times in enumerate(
        zip(predictions["emergence_times"], predictions["emergence_times_with_equal_heads"], strict=True)
    ):
        weights = [f"{limits[name][i]:.6g}" if limits else "-" for name in ("omega", "mu")]
        lines.append("  ".join([f"{i + 1:>4}", *(f"{text:>10}" for text in [*weights, *(f"{t:.6g}" for t in times)])]))
    return "\n".join([*lines, "", *_notes(predictions)])


def _of_task(predictions: dict[str, Any], key: str, task: int) -> str:
    return "" if key in _OF_THE_SUM else as_loss(predictions[key]["per_task"][task])


def _notes(predictions: dict[str, Any]) -> list[str]:
    used = predictions["conventions"]
    notes = [] if predictions["gf_reason"] is None else [predictions["gf_reason"]]
    if predictions["shared_loss"] is not None:
        groups = [" ".join(map(str, group)) for group in predictions["shared_loss"]["groups"]]
        notes.append(f"shared: tasks by head, {' | '.join(groups)}")
    notes.append(f"initialization scale (omega) {used['scale']:g}; strengths are those of a coordinate")
    return [*notes, INFERRED]


def _summed(losses: np.ndarray | None) -> dict[str, Any] | None:
    return None if losses is None else {"total": float(losses.sum()), "per_task": losses.tolist()}


def _shared(task: MultiTaskRegression, heads: int) -> dict[str, Any] | None:
    """The best division of the tasks among the heads, groups counting tasks from 1; None if there are too many."""
    try:
        best = softmax.best_partition(task, heads)
    except InvalidInput:
        return None
    return {**(_summed(best.loss) or {}), "groups": [[i + 1 for i in group] for group in best.groups]}


def _too_few(heads: int, tasks: int) -> str:
    return (
        f"the flow's limit gives each of {tasks} tasks a head of its own, and there are {heads}: tasks share heads, at "
        "best with the shared loss"
    )
