"""What theory says of an experiment before anything is trained: from its own task, sample and initial weights."""

import dataclasses
from typing import Any

from ._build import Keys, build_model, build_task, keys_of, normalization_of
from ._experiment import Experiment
from ._kind import note_of
from ._memory import check_weights


@dataclasses.dataclass(frozen=True)
class Level:
    """A plateau of the loss, and how many components are learned there."""

    loss: float
    learned: int


@dataclasses.dataclass(frozen=True)
class DropForecast:
    """A drop of the loss: the time t/τ at which it is halfway down, its step if there are steps, who makes it.

    Head and component count from 1; None is all of them.
    """

    time: float
    step: float | None
    head: int | None
    component: int | None


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What theory says of an experiment.

    `levels` and `drops` are those of linear attention; `reason` says why there are none, or why some drops are missing.
    `document` is all of it as plain values, and `str` a table.
    """

    experiment: Experiment
    levels: tuple[Level, ...] = ()
    drops: tuple[DropForecast, ...] = ()
    reason: str = ""
    document: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        from . import _predict_linear, _predict_softmax

        if not self.document:
            return f"no prediction: {self.reason}"
        return (_predict_softmax if "gf_loss" in self.document else _predict_linear).tables(self.document)


def predict(experiment: Experiment) -> Prediction:
    """Return what theory says of an experiment, before anything is trained.

    **Arguments:**

    - `experiment`: the experiment, whose own task, finite sample and initial weights are used.

    **Returns:** the `Prediction`.

    **Example:**

    >>> import stepwell as sw
    >>> experiment = sw.Experiment(task={"eigenvalues": [0.6, 0.4]}, model={"scale": 0.01})
    >>> [level.learned for level in experiment.predict().levels]
    [0, 1, 2]
    """
    keys = keys_of(experiment.seed)
    if experiment.task.kind == "multitask":
        return _several(experiment, keys)
    reason = no_theory(experiment)
    if reason:
        return Prediction(experiment, reason=reason)
    from ._predict_linear import predict_linear

    check_weights(experiment)
    task = build_task(experiment, keys)
    return predict_linear(experiment, task, build_model(experiment, task, keys))


def _several(experiment: Experiment, keys: Keys) -> Prediction:
    from ._predict_softmax import predict_softmax

    if note_of(experiment.model.kind, "reads") != "spectra":
        return Prediction(experiment, reason=f"there is no theory of the model {experiment.model.kind} on this task")
    heads, scale = experiment.model.heads, experiment.model.scale
    return Prediction(experiment, document=predict_softmax(build_task(experiment, keys), heads=heads, scale=scale))


def theory_name(experiment: Experiment) -> str | None:
    """The equations that the model follows, "separate" or "merged"; None if they are not known."""
    return note_of(experiment.model.kind, "theory")


def no_theory(experiment: Experiment) -> str:
    """Why the theory of linear attention does not describe a run; empty if it does."""
    task, model = experiment.task, experiment.model
    context, divided = task.get("context"), normalization_of(experiment) == "1/N"
    reasons = {
        f"the model {model.kind}": theory_name(experiment) is None,
        "softmax attention on one regression": model.get("activation", "linear") != "linear",
        f"the task {task.kind}": task.kind in ("mixture", "multitask"),
        "several outputs": task.get("outputs", 1) != 1,
        "a mixture of context lengths whose attention is not divided by N": isinstance(context, tuple) and not divided,
        f"attention that is not divided by N on {task.kind}, which has no field context": not context and not divided,
    }
    known = next((f"there is no theory of {what}" for what, here in reasons.items() if here), "")
    return known or ("" if task.kind == "regression" else _no_moments(experiment))


def no_comparison(experiment: Experiment) -> str:
    """Why the drops of a run are not compared with the theory; empty if they are."""
    model = experiment.model.kind
    if note_of(model, "reads") == "cubic":  # such a model does not know what its features are divided by
        return no_theory(experiment) or f"the drops of the {model} are those of {theory_name(experiment)} attention"
    return no_theory(experiment)


def _no_moments(experiment: Experiment) -> str:
    """Why the theory does not take a task of the user's own; empty if it does."""
    from stepwell._util.errors import InvalidInput
    from stepwell.theory import linear

    try:
        linear.levels(build_task(experiment, keys_of(experiment.seed)))
    except InvalidInput as error:
        return str(error)
    return ""
