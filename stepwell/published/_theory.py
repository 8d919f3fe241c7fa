"""What the theory says about a training run: levels of the loss and, from the initial weights, its course."""

from dataclasses import dataclass

import numpy as np

from stepwell.dynamics import flow_time, time_factor, weight_factor
from stepwell.models import CubicMLP, MergedAttention, SeparateAttention
from stepwell.theory import IntegrationFailed, linear

from ._setup import Setup

_POINTS = 2001
"""Steps at which a predicted course is drawn, at the most."""


@dataclass(frozen=True)
class Levels:
    """`losses` of the plateaus, where `learned` components are known."""

    learned: list[int]
    losses: list[float]


@dataclass(frozen=True)
class Course:
    """A predicted loss, by step, and the steps of its drops."""

    steps: np.ndarray
    loss: np.ndarray
    drops: list[float]
    label: str


def levels_of(setup: Setup) -> Levels | None:
    """The levels that this model can visit, or None where there is no theory for it.

    Merged attention drops at once from none to all; separate heads stop at each number of components they can hold.
    """
    if _reason(setup) is not None:
        return None
    found = linear.levels(setup.task)  # pyright: ignore
    if setup.flags.model == "attnS":
        most = min(setup.flags.in_dim, setup.flags.head_num * setup.flags.rank)
        learned = list(range(most + 1))
    else:
        learned = [0, setup.flags.in_dim]
    return Levels(learned, [float(found[m]) for m in learned])


def paper_time(setup: Setup, steps):
    r"""t/τ in the paper's convention, attention divided by N; in the run's own where lengths vary or it is softmax."""
    factor = 1.0
    if time_is_papers(setup):
        factor = time_factor("none", "1/N", length=setup.flags.context, factors=setup.model.factors)
    return factor * flow_time(steps, setup.flags.lr)


def time_is_papers(setup: Setup) -> bool:
    """Whether this run can be rescaled to the paper's convention."""
    return not (setup.flags.softmax or setup.flags.vary_len)


def course_of(setup: Setup, last: int) -> tuple[Course | None, str]:
    """The predicted course up to step `last`, or None and the reason why there is none."""
    reason = _reason(setup)
    if reason is not None:
        return None, f"--theory: {reason}"
    try:
        return _course(setup, last), ""
    except IntegrationFailed as error:
        return None, f"--theory: {error}"


def _reason(setup: Setup) -> str | None:
    """Why there is no theory at all."""
    flags = setup.flags
    reasons = {
        "softmax attention": flags.softmax,
        "--icl below 1": flags.icl != 1,
        "several outputs": flags.out_dim != 1,
        "varying lengths, divided by tokens,": flags.vary_len,
    }
    for what, here in reasons.items():
        if here:
            return f"there is no prediction for {what}; nothing is drawn"
    return None


def _course(setup: Setup, last: int) -> Course:
    model, task = setup.model, setup.task
    factor = weight_factor("none", "1/N", length=setup.flags.context, factors=model.factors)
    weights = {name: factor * np.asarray(value) for name, value in model.weights().items()}
    steps = np.unique(np.linspace(0, last, min(_POINTS, last + 1)).round())
    times = paper_time(setup, steps)
    dim = setup.flags.in_dim
    if isinstance(model, SeparateAttention):
        drops = linear.drop_schedule(
            task,  # pyright: ignore
            weights["value"][:, 0, -1],
            weights["key"][:, :, :dim],
            weights["query"],
            until=float(times[-1]),
        )
        # A staircase needs its edges.
        edges = np.array([edge for drop in drops for edge in (drop.time * (1 - 1e-12), drop.time)])
        times = np.union1d(times, edges)
        loss = linear.predicted_staircase(task, drops, times)  # pyright: ignore
        label, when = "theory: drops from the initial weights", np.array([drop.time for drop in drops])
    else:
        if isinstance(model, CubicMLP):
            values, key_queries = weights["readout"][0], weights["hidden"].reshape(-1, dim, dim)
        else:
            assert isinstance(model, MergedAttention)
            values, key_queries = weights["value"][:, 0, -1], weights["key_query"][:, :dim]
        start = linear.merged_start(task, values, key_queries)  # pyright: ignore
        loss = linear.merged_course(task, times, *start).loss  # pyright: ignore
        drop = linear.half_drop_time(task, *start) if start[0] > 0 else np.inf  # pyright: ignore
        label, when = "theory: course from the initial weights", np.array([drop] if drop <= times[-1] else [])
    unit = float(paper_time(setup, 1.0))
    return Course(times / unit, loss, (when / unit).tolist(), label)
