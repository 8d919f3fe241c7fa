"""What the theory says about a training run: levels of the loss and, from the initial weights, its course."""

import functools
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from stepwell._errors import InvalidInput
from stepwell.dynamics import flow_time, time_factor, weight_factor
from stepwell.models import class_of
from stepwell.objectives import Moments
from stepwell.probes import compare, sample_task
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import IntegrationFailed, RegressionTask, linear, softmax

from ._beyond import Beyond
from ._flags import Engine, Published, infinite
from ._setup import Setup, set_up

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
    """The levels of the loss that this model can visit.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it.

    **Returns:** the `Levels`: how many components are learned on each plateau, and its loss as a mean squared error;
    None where there is no theory for the model or the data.

    **Example:** merged attention falls from the first level to the last.

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> levels = training.levels_of(training.set_up(Published.of(parser.parse_args(["--model", "attnM"])), "moments"))
    >>> levels.learned, [round(loss, 3) for loss in levels.losses]
    ([0, 4], [1.0, 0.136])
    """
    if isinstance(setup.task, MultiTaskRegression):
        return _limits(setup.task, setup.flags.head_num)
    if _reason(setup) is not None:
        return None
    flags = setup.flags
    losses = linear.levels(setup.task)  # pyright: ignore
    pairs = flags.head_num * flags.kind.pairs(flags.in_dim, flags.rank)
    learned = _predictor(setup).plateaus(flags.in_dim, pairs)
    return Levels(learned, [float(losses[m]) for m in learned])


def _limits(task: MultiTaskRegression, heads: int) -> Levels | None:
    """Of several regressions: the loss before and after, to leading order, where each has a head."""
    if heads < len(task.dims):
        return None
    ends = [float(task.signals.sum()), float(softmax.limits.flow_limit_loss(task).sum())]
    return Levels([0, len(task.dims)], ends)


def paper_time(setup: Setup, steps):
    r"""t/τ in the paper's convention, attention divided by N; in the run's own where lengths vary or it is softmax.

    Of several regressions it is t of $dW/dt = -\partial L/\partial W$.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it.
    - `steps`: a number of steps, or an array of them.

    **Returns:** the flow time after so many steps.

    **Example:** with attention divided by N, the product of two weights is N times as large, and time runs N times as
    fast.

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--seq_len", "32"])), "population")
    >>> round(float(training.paper_time(setup, 1000)), 6)  # 2 lr steps N
    62.0
    """
    factor = 0.5 if setup.beyond.several else 1.0
    if time_is_papers(setup):
        length, factors = setup.flags.context, setup.model.factors  # pyright: ignore
        factor = time_factor(setup.normalisation, "1/N", length=length, factors=factors)
    return factor * flow_time(steps, setup.flags.lr)


def time_is_papers(setup: Setup) -> bool:
    """Whether this run can be rescaled to the paper's convention."""
    return not (setup.flags.softmax or setup.flags.vary_len)


def course_of(setup: Setup, last: int) -> tuple[Course | None, str]:
    """The course of the loss that the theory predicts from the initial weights, for the sample trained on.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it.
    - `last`: the step at which the course ends.

    **Returns:** the `Course`, by step, and an empty text, or the reason why some drops are missing; or None and the
    reason why there is no prediction.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--model", "attnM", "--white_cov"])), "moments")
    >>> course, reason = training.course_of(setup, 2000)
    >>> [round(step, -1) for step in course.drops]
    [870.0]
    """
    reason = _reason(setup)
    if reason is not None:
        return None, f"--theory: {reason}"
    if not setup.beyond.plain:
        return None, "--theory: there is no prediction of times but for gradient descent at a constant rate"
    try:
        return _course(setup, last)
    except IntegrationFailed as error:
        return None, f"--theory: {error}"


def comparison_of(setup: Setup, trajectory: xr.Dataset) -> pd.DataFrame | None:
    """The drops of a run, predicted and measured, in steps: `probes.compare` with the sample trained on.

    **Arguments:**

    - `setup`: what was trained, as `set_up` builds it.
    - `trajectory`: the run, as `train` returns it.

    **Returns:** the table; None where there is no theory for the model or the data, or too little was recorded.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> words = ["--in_dim", "2", "--epoch", "1000", "--white_cov"]
    >>> setup = training.set_up(Published.of(parser.parse_args(words)), "population")
    >>> training.comparison_of(setup, training.train(setup, None))["status"].tolist()
    ['measured']
    """
    if _reason(setup) is not None or trajectory.sizes["step"] < 2 or setup.flags.kind.layout != "tokens":
        return None
    return compare(trajectory, setup.task, sample=_sample(setup.flags, setup.engine, setup.beyond))  # pyright: ignore


@functools.lru_cache(maxsize=1)
def _sample(flags: Published, engine: Engine, beyond: Beyond) -> Moments | None:
    """The moments of the sequences trained on, which are the same for every setup of these flags."""
    if infinite(engine):
        return None
    setup = set_up(flags, engine, beyond)
    return Moments.of_task(setup.task, flags.trainset_size, features="cubic", normalisation="1/N", key=setup.keys.train)


def _theory_task(setup: Setup) -> RegressionTask:
    """The task whose closed form is nearest to what is trained on."""
    task: RegressionTask = setup.task  # pyright: ignore
    sample = _sample(setup.flags, setup.engine, setup.beyond)
    if sample is None:
        return task
    try:
        return sample_task(task, sample, commuting=setup.flags.kind.theory == "merged")
    except InvalidInput:
        return task


def _reason(setup: Setup) -> str | None:
    """Why there is no theory for this run; None if there is."""
    flags = setup.flags
    if setup.beyond.several:
        return "the times of several regressions are those of stepwell predict --dims; nothing is drawn"
    reasons = {
        f"--model {flags.model}": flags.kind.theory is None,
        "softmax attention": flags.softmax,
        "--icl below 1": flags.icl != 1,
        "several outputs": flags.out_dim != 1,
        "varying lengths, divided by tokens,": flags.vary_len,
    }
    for what, here in reasons.items():
        if here:
            return f"there is no prediction for {what}; nothing is drawn"
    return None


def _course(setup: Setup, last: int) -> tuple[Course, str]:
    model, predictor = setup.model, _predictor(setup)
    factor = weight_factor(setup.normalisation, "1/N", length=setup.flags.context, factors=model.factors)  # pyright: ignore
    weights = {name: factor * np.asarray(value) for name, value in model.weights().items()}
    steps = np.unique(np.linspace(0, last, min(_POINTS, last + 1)).round())
    course = predictor.course(
        _theory_task(setup),
        class_of(setup.flags.kind).theory_weights(weights),
        paper_time(setup, steps),
    )
    unit = float(paper_time(setup, 1.0))
    drops = [drop.time / unit for drop in course.drops]
    remark = f"--theory: {course.drops.reason}" if course.drops.reason else ""
    return Course(course.times / unit, course.loss, drops, predictor.course_label), remark


def _predictor(setup: Setup) -> linear.AbstractPredictor:
    theory = setup.flags.kind.theory
    assert theory is not None, f"{setup.flags.model} has no theory"
    return linear.PREDICTORS[theory]
