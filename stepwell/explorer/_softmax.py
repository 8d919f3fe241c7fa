"""Several regressions, learned by softmax attention: the run and its limits, as arrays for the page."""

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.dynamics import flow
from stepwell.probes import passage_time, phases
from stepwell.published.training import Setup
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax

from ._linear import finite_remark, small, training_words
from ._state import State
from ._traced import traced
from ._training import POINTS, Recorded, recorded_flow, set_up_state, time_name, train, train_in_parts, unit_of

View = dict[str, Any]

COLUMNS = (
    "task",
    "dimension",
    "strength",
    "predicted from",
    "predicted to",
    "measured",
    "head",
    "share",
    "ω in the limit",
    "measured ω",
    "μ in the limit",
    "measured μ",
)
_LATE = 1.5
"""A flow without a time goes on to so many times the last predicted emergence, and through what follows."""
_NEGATIVE = 1e-3
"""Of the largest μ, the size from which on one below zero is said."""
_EMERGED = 0.5
"""Of its last value, the part of the answer at which a task has emerged."""


def softmax_view(state: State, report: Callable[[float, View], None], stop: Callable[[], bool]) -> View:
    """The run of a state."""
    setup = set_up_state(state)
    if state.on_sequences:
        recorded = train_in_parts(setup, lambda part, now: report(part, run_view(setup, now)), stop)
    else:
        recorded = closed_form(state, setup)
    return run_view(setup, recorded)


def closed_form(state: State, setup: Setup) -> Recorded:
    """The run on the loss in closed form. Its programs serve all dimensions of tasks."""
    model, loss = traced(setup)
    if state.flows:
        until = end_of(state, setup) / unit_of(setup)
        run = flow(model, loss, until=until, save=POINTS, spacing="steps", solver="rodas5p", progress=False)
        return recorded_flow(setup, run)
    return train(setup, model, loss)


def end_of(state: State, setup: Setup) -> float:
    """When the flow ends, in the time of the page."""
    if state["until"] > 0:
        return state["until"]
    task: Any = setup.task
    bracket = softmax.emergence.emergence_bracket(task, np.full(len(task.dims), state["init"]), heads=state["heads"])
    after = 3 * softmax.emergence.loss_drop_width(task).max() + 2 * softmax.emergence.omega_climb_width(task).max()
    return _LATE * float(bracket.late.max()) + float(after)


def run_view(setup: Setup, recorded: Recorded) -> View:
    task, model = setup.task, setup.model
    assert isinstance(task, MultiTaskRegression)
    weights, dims, heads = recorded.weights, np.array(task.dims), setup.flags.head_num
    omega = weights["key"] * weights["query"] * (model.score_scale / dims)  # pyright: ignore
    mu, time = weights["value"] * weights["output"], unit_of(setup) * recorded.time
    bracket = softmax.emergence.emergence_bracket(task, np.full(dims.size, setup.flags.init), heads=heads)
    made: View = {
        "mode": "softmax",
        "time": time,
        "time_name": time_name(setup),
        "loss": recorded.loss,
        "omega": small(omega),
        "mu": small(mu),
        "allocation": small(omega * mu),
        "limits": _limits(task, heads),
        "phases": _phases(time, recorded.loss),
        "drop_times": bracket.early,
        "drop_times_late": bracket.late,
        "drop_names": [f"task {number}" for number in range(1, dims.size + 1)],
        "table": {"columns": list(COLUMNS), "rows": _rows(task, heads, time, omega, mu, bracket)},
        "caption": _caption(setup, recorded),
        "outcome": recorded.outcome,
        "message": recorded.message,
        "remark": "; ".join(filter(None, (_balance_remark(time, mu), finite_remark(setup)))),
        "problems": {},
    }
    if recorded.steps is not None:
        made["steps"] = recorded.steps.astype(float)
    return made


def _limits(task: MultiTaskRegression, heads: int) -> dict[str, float]:
    """Losses to compare with, each the sum over tasks."""
    made = {"nothing learned": float(task.signals.sum())}
    if heads >= len(task.dims):
        made["flow, one head for each task"] = float(softmax.limits.flow_limit_loss(task).sum())
    else:
        made["best division among the heads"] = float(softmax.allocation.best_partition(task, heads).loss.sum())
    made["best single head"] = float(softmax.limits.single_head_optimum(task).loss.sum())
    made["lower bound"] = float(softmax.bounds.lower_bound(task, heads).sum())
    made["Bayes risk"] = float(softmax.bayes.bayes_risk(task).sum())
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
        f"after t = {time[np.argmax(below)]:.4g} the run is not the flow from these weights, in which no μ is below "
        "zero: errors of the solver have grown, and the limits do not apply"
    )


def _rows(
    task: MultiTaskRegression, heads: int, time: np.ndarray, omega: np.ndarray, mu: np.ndarray, bracket: Any
) -> list[list[Any]]:
    limit = softmax.limits.flow_limit(task) if heads >= len(task.dims) else None
    rows = []
    for number, (dim, strength) in enumerate(zip(task.dims, task.strengths, strict=True)):
        answers = omega[:, :, number] * mu[:, :, number]
        total, last = answers.sum(axis=1), np.abs(answers[-1])
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


def _caption(setup: Setup, recorded: Recorded) -> str:
    flags, tasks = setup.flags, setup.flags.out_dim
    heads = f"{flags.head_num} head" + ("s" if flags.head_num > 1 else "")
    how = training_words(setup)
    regressions = f"{tasks} regression" + ("s" if tasks > 1 else "")
    return (
        f"Softmax attention with {heads} on {regressions}, L = {flags.context}: {how} takes the loss from "
        f"{recorded.loss[0]:.4g} to {recorded.loss[-1]:.4g} ({recorded.outcome})."
    )
