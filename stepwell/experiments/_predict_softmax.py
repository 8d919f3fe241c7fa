"""What the theory of softmax attention says about several regressions, as one document and as tables."""

from typing import Any

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import TIME_UNIT
from stepwell.models import SpectralAttention
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import IntegrationFailed, softmax

from ._predict_linear import as_loss, counted, number

INFERRED = (
    "the full text of arXiv 2402.19442 could not be consulted: that strengths are those of a coordinate, the factor of "
    "the loss and the constant of the lower bound are inferred from its captions"
)

_COLUMNS = (
    ("gf_loss", "flow"),
    ("gf_exact_loss", "flow, exact"),
    ("division_loss", "best flow"),
    ("single_head_loss", "one head"),
    ("lower_bound", "lower bound"),
    ("mmse", "Bayes"),
)
_OF_THE_SUM = {"lower_bound"}
"""What bounds the sum over tasks and not each: a task may end below its own part of it."""


def predict_softmax(task: MultiTaskRegression, model: SpectralAttention, *, scale: float) -> dict[str, Any]:
    """The JSON document. Losses are of the target without noise, in total and for each task; times are t/τ."""
    dims, context, heads = list(task.dims), task.context.counts[0], model.key.shape[0]
    end, reason = _flow_end(task, model)
    # The paper's t/τ is the time of dW/dt = -1/2 dL/dW: a loss factor of 1.
    emerges = softmax.emergence_bracket(task, np.full(len(dims), scale), heads=heads, loss_factor=1.0)
    # Times are exact for small weights and elsewhere to within the width of the drop: shorter ones say nothing.
    waits = emerges.early / softmax.loss_drop_width(task, loss_factor=1.0)
    early, late = ([t if w > 1 else None for t, w in zip(each.tolist(), waits, strict=True)] for each in emerges)
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
        "heads_count_from": 1,
        "gf_loss": None if end is None else _summed(end.loss),
        "gf_exact_loss": None if end is None else _summed(softmax.exact_loss(task, end.omega, end.mu)),
        "gf_heads": None if end is None else (end.head + 1).tolist(),
        "gf_reason": reason,
        "division_loss": _division(task, heads),
        "single_head_loss": _summed(softmax.single_head_optimum(task).loss),
        "lower_bound": {"total": float(softmax.lower_bound(task, heads).sum())},
        "mmse": _summed(softmax.exact_bayes_risk(task)),
        "limits": None if end is None else {"omega": end.omega.sum(axis=0).tolist(), "mu": end.mu.sum(axis=0).tolist()},
        "emergence_times": early,
        "emergence_times_with_equal_heads": late,
        "emergence_reason": None if waits.min() > 1 else _too_large(waits, scale),
        "conventions": {
            "strengths": "variance of a coordinate of the task vectors",
            "scale": scale,
            "initialization": "omega of the winning head is the scale, mu/omega is on the ray of the warm-up",
            "losses": "sums over tasks of squared errors without the noise of the target; to leading order in 1/L and "
            "1/d, but gf_exact_loss and mmse at finite L and d",
            "gf_loss": "end of the flow from the initial weights of this seed, which are balanced and stay so; weights "
            "that are not balanced leave it for a lower loss",
            "division_loss": "the best division of the tasks among heads, the least end of a flow from positive "
            "balanced weights",
            "lower_bound": "of the sum over tasks, not of each; weights of any sign; the budget is 1/e for one head, "
            "else min(heads - 1, tasks), found numerically",
            "inferred": INFERRED,
        },
        "time_unit": TIME_UNIT,
    }


def _flow_end(task: MultiTaskRegression, model: SpectralAttention) -> tuple[softmax.FlowEnd | None, str | None]:
    """Where the flow ends, or why that is not known."""
    omega, mu = np.asarray(model.omega()), np.asarray(model.mu())
    try:
        return softmax.flow_end(task, omega, mu, score_scale=model.score_scale, loss_factor=1.0), None
    except (IntegrationFailed, InvalidInput) as error:
        return None, f"no prediction of where the flow ends: {error}"


def tables(predictions: dict[str, Any]) -> str:
    task, shown = predictions["task"], [column for column in _COLUMNS if predictions[column[0]] is not None]
    noise = f", noise variance {task['noise_variance']:g}" if task["noise_variance"] else ""
    heads = counted(predictions["heads"], "head")
    lines = [
        f"softmax attention, {heads}, {counted(len(task['dims']), 'regression')}, context {task['context']}{noise}"
    ]
    lines += ["", "losses", "task  dim   strength      signal" + "".join(f"  {name:>11}" for _, name in shown)]
    for i, (dim, strength, signal) in enumerate(zip(task["dims"], task["strengths"], task["signals"], strict=True)):
        each = ["" if key in _OF_THE_SUM else as_loss(predictions[key]["per_task"][i]) for key, _ in shown]
        losses = "".join(f"  {loss:>11}" for loss in each)
        lines.append(f"{i + 1:>4}  {dim:>3}  {strength:>9.4g}  {as_loss(signal):>10}{losses}")
    totals = "".join(f"  {as_loss(predictions[key]['total']):>11}" for key, _ in shown)
    lines.append(f"{'all':>4}  {sum(task['dims']):>3}  {'':>9}  {as_loss(sum(task['signals'])):>10}{totals}")
    limits = predictions["limits"]
    lines += ["", "weights in the end, and bounds on when they emerge: one effective head, H effective heads"]
    lines += ["task  head       omega          mu  t/τ, lower  t/τ, upper"]
    bounds = predictions["emergence_times"], predictions["emergence_times_with_equal_heads"]
    for i, times in enumerate(zip(*bounds, strict=True)):
        head = predictions["gf_heads"][i] if limits else "-"
        weights = [limits[name][i] if limits else None for name in ("omega", "mu")]
        numbers = "  ".join(f"{number(value):>10}" for value in [*weights, *times])
        lines.append(f"{i + 1:>4}  {head:>4}  {numbers}")
    return "\n".join([*lines, "", *_notes(predictions)])


def _notes(predictions: dict[str, Any]) -> list[str]:
    used, ends = predictions["conventions"], predictions["gf_heads"]
    notes = ["flow: from these weights, which are balanced and stay so; exact and Bayes hold at finite L and d, "]
    notes[0] += "other losses to leading order"
    if ends is None:
        notes = [predictions["gf_reason"], "Bayes holds at finite L and d, other losses to leading order"]
    elif len(set(ends)) < len(ends):
        notes.append("tasks of one head share it for good")
    if predictions["emergence_reason"] is not None:
        notes.append(predictions["emergence_reason"])
    if predictions["division_loss"] is not None:
        groups = [" ".join(map(str, group)) for group in predictions["division_loss"]["groups"]]
        notes.append(f"best flow: of all divisions of the tasks among heads, {' | '.join(groups)}")
    notes.append(f"initialization scale (omega) {used['scale']:g}; strengths are those of a coordinate")
    return [*notes, INFERRED]


def _summed(losses: np.ndarray | None) -> dict[str, Any] | None:
    return None if losses is None else {"total": float(losses.sum()), "per_task": losses.tolist()}


def _division(task: MultiTaskRegression, heads: int) -> dict[str, Any] | None:
    """The best division of the tasks among the heads, groups counting tasks from 1; None if there are too many."""
    try:
        best = softmax.best_partition(task, heads)
    except InvalidInput:
        return None
    return {**(_summed(best.loss) or {}), "groups": [[i + 1 for i in group] for group in best.groups]}


def _too_large(waits: np.ndarray, scale: float) -> str:
    """`waits` are the times until each task emerges, over the width of its drop."""
    tasks = " ".join(str(i + 1) for i in np.flatnonzero(waits <= 1))
    return (
        f"no time is predicted for task {tasks}: the theory assumes small initialization, and from the scale {scale:g} "
        f"the drop would take longer than the wait for it; try a scale of {scale * waits.min() / 2:.1g}"
    )
