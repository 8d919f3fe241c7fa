"""What the theory of linear attention says of an experiment: levels, components, and drops from the initial weights."""

import functools
from typing import Any, NamedTuple

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.paper_time import TIME_NAME, weight_factor
from stepwell.models import theory_of
from stepwell.theory import IntegrationFailed, linear

from ._build import build_task, keys_of, normalization_of
from ._experiment import Experiment
from ._kind import find_kind
from ._prediction import DropForecast, Level, Prediction, theory_name
from ._training import time_scale


class Described(NamedTuple):
    """What the theory of linear attention starts from: its own task, which may be that of the sample, and weights."""

    predictor: linear.AbstractPredictor
    task: Any
    weights: dict[str, np.ndarray]
    levels: tuple[Level, ...]
    remark: str

    @property
    def heads(self) -> int:
        return len(self.weights["values"])

    @property
    def pairs(self) -> int:
        """Pairs of key and query in a head."""
        return self.weights["keys"].shape[-2] if "keys" in self.weights else 1


def describe_linear(experiment: Experiment, task: Any, model: Any) -> Described:
    """The theory of a task and initial weights, with its levels."""
    predictor = linear.PREDICTORS[str(theory_name(experiment))]
    own, remark = theory_task(experiment, task)
    losses = linear.levels(own)
    made = Described(predictor, own, theory_weights(experiment, model), (), remark)
    learned = predictor.plateaus(int(np.sum(np.diff(losses) < 0)), made.heads * made.pairs)
    return made._replace(levels=tuple(Level(float(losses[m]), m) for m in learned))


def predict_linear(experiment: Experiment, task: Any, model: Any) -> Prediction:
    """The prediction from a task and initial weights."""
    theory = describe_linear(experiment, task, model)
    levels = theory.levels
    drops, reason = drops_of(experiment, theory)
    if not reason and len(drops) < len(levels) - 1:
        reason = "no head is left"
    document = _document(experiment, task, levels, drops, reason, theory.remark)
    return Prediction(experiment, levels, drops, reason, document)


def drops_of(experiment: Experiment, theory: Described) -> tuple[tuple[DropForecast, ...], str]:
    """The predicted drops, and why some or all are missing."""
    training = experiment.training
    per_step = None
    if training.kind == "descent":
        if (training.optimizer, training.schedule) != ("sgd", "constant"):
            return (), "times are predicted for gradient descent at a constant rate, and not for other optimizers"
        per_step = time_scale(experiment.task, experiment.model).of_steps(1.0, training.rate)
    dim = theory.weights["queries" if "queries" in theory.weights else "key_queries"].shape[-1]
    require_memory(
        theory.predictor.working_bytes(theory.heads, theory.pairs, dim),
        what=f"a prediction for {theory.heads} heads",
        instead="take fewer heads or a smaller rank",
    )
    try:
        made = theory.predictor.drops(theory.task, theory.weights)
    except (IntegrationFailed, InvalidInput) as error:
        return (), str(error)
    drops = (
        DropForecast(
            float(drop.time),
            None if per_step is None else float(drop.time) / per_step,
            None if drop.head is None else drop.head + 1,
            None if drop.component is None else drop.component + 1,
        )
        for drop in made
    )
    return tuple(drops)[: len(theory.levels) - 1], made.reason or ""


def theory_weights(experiment: Experiment, model: Any) -> dict[str, np.ndarray]:
    """The weights of a model as the theory takes them, for attention divided by N."""
    normalization, context = normalization_of(experiment), experiment.task.get("context")
    factor = 1.0
    if normalization != "1/N":
        factor = weight_factor(normalization, "1/N", length=context, factors=type(model).factors)
    if theory_of(type(model)) != theory_name(experiment):
        raise InvalidInput(
            f"the model kind {experiment.model.kind} is registered with theory {theory_name(experiment)}, which its "
            f"class {type(model).__name__} does not declare; write declared_form = 'separate' in a subclass of "
            "SeparateAttention, or register it without theory"
        )
    weights = {name: factor * np.asarray(value) for name, value in model.weights().items()}
    return type(model).theory_weights(weights)


def sample_of(experiment: Experiment) -> Any:
    """The moments of the sequences trained on, for attention divided by N; None if they are infinitely many."""
    if experiment.objective.kind not in ("moments", "sampled"):
        return None
    return _sample(experiment, find_kind("task", experiment.task.kind).build)


@functools.lru_cache(maxsize=1)
def _sample(experiment: Experiment, builder: Any) -> Any:
    """Levels, drops, course and comparison of a run all read them. A task that is registered anew is drawn anew."""
    from stepwell.objectives import Moments

    keys = keys_of(experiment.seed)
    task, count = build_task(experiment, keys), experiment.objective.sequences
    return Moments.of_task(task, count, features="cubic", normalization="1/N", progress=False, key=keys.train)


def theory_task(experiment: Experiment, task: Any) -> tuple[Any, str]:
    """The task whose closed form is nearest to what is trained on, and a remark if it is that of the sample."""
    from stepwell.analysis import sample_task

    sample = sample_of(experiment)
    if sample is None:
        return task, ""
    try:
        return (
            sample_task(task, sample, commuting=theory_name(experiment) == "merged"),
            f"predicted for the {experiment.objective.sequences} sequences trained on",
        )
    except InvalidInput as error:
        return task, f"predicted for infinitely many sequences: {error}"


def _document(
    experiment: Experiment,
    task: Any,
    levels: tuple[Level, ...],
    drops: tuple[DropForecast, ...],
    reason: str,
    remark: str,
) -> dict[str, Any]:
    return {
        "experiment": experiment.to_dict(),
        "name": experiment.name,
        "components_count_from": 1,
        "heads_count_from": 1,
        "components": _components(task),
        "levels": [level.loss for level in levels],
        "learned": [level.learned for level in levels],
        "drops": [
            {"time": drop.time, "step": drop.step, "head": drop.head, "component": drop.component} for drop in drops
        ],
        "drops_missing": reason or None,
        "remark": remark or None,
        "final_loss": levels[-1].loss,
        "time_unit": time_scale(experiment.task, experiment.model).unit,
    }


def _components(task: Any) -> list[dict[str, Any]]:
    """Components in the order in which their gains fall; those of a task without covariances, or whose covariances do
    not commute, have no eigenvalues of their own."""
    try:
        modes = linear.modes(task)
        columns = zip(modes.variances.tolist(), modes.task_variances.tolist(), modes.gains.tolist(), strict=True)
    except InvalidInput:
        columns = ((None, None, gain) for gain in linear.component_gains(task).tolist())
    return [
        {"component": d, "eigenvalue": lam, "task_eigenvalue": omega, "gain": gain}
        for d, (lam, omega, gain) in enumerate(columns, start=1)
    ]


def tables(document: dict[str, Any]) -> str:
    """The document as text."""
    task, model = document["experiment"]["task"], document["experiment"]["model"]
    context = task.get("context")
    lengths = " ".join(map(str, context)) if isinstance(context, list) else context
    noise = f", noise variance {task['noise']:g}" if task.get("noise") else ""
    lines = [f"in-context regression in dimension {len(document['components'])}, context {lengths}{noise}", ""]
    lines.append("component  eigenvalue  task eigenvalue        gain")
    for row in document["components"]:
        variances = f"{_number(row['eigenvalue']):>10}  {_number(row['task_eigenvalue']):>15}"
        lines.append(f"{row['component']:>9}  {variances}  {as_loss(row['gain']):>10}")
    lines += ["", "      loss  components learned"]
    for level, learned in zip(document["levels"], document["learned"], strict=True):
        lines.append(f"{as_loss(level):>10}  {_first(learned)}")
    lines += ["", _model_line(model, document["experiment"]["seed"])]
    lines += _drop_lines(document)
    lines += ["", f"final loss {as_loss(document['final_loss'])}"]
    return "\n".join(lines + ([document["remark"]] if document["remark"] else []))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _first(learned: int) -> str:
    return {0: "none", 1: "1", 2: "1 2"}.get(learned, f"1 to {learned}")


def _model_line(model: dict[str, Any], seed: int) -> str:
    rank = f" of rank {model['rank']}" if "rank" in model else ""
    heads = f", {counted(model['heads'], 'head')}{rank}" if "heads" in model else ""
    scale = f", initialization scale {model['scale']:g}" if "scale" in model else ""
    divided = {"1/N": "divided by N", "none": "unnormalized", "1/tokens": "divided by tokens"}
    attention = f", attention {divided[model['normalization']]}" if "normalization" in model else ""
    balanced = ", balanced" if model.get("balanced") else ""
    return f"{model['kind']}{heads}{scale}{attention}, seed {seed}{balanced}"


def _drop_lines(document: dict[str, Any]) -> list[str]:
    """The table of drops; the time of a drop is when the loss is halfway down."""
    drops, levels, reason = document["drops"], document["levels"], document["drops_missing"]
    stepped = any(drop["step"] is not None for drop in drops)
    lines = [f"{'drop at ' + TIME_NAME:>13}{'       step' if stepped else ''}        loss to  head  component"]
    for drop, level in zip(drops, levels[1:], strict=False):
        step = f"  {drop['step']:>9.0f}" if stepped else ""
        who = [
            f"{'all' if drop[name] is None else drop[name]:>{width}}" for name, width in (("head", 4), ("component", 9))
        ]
        lines.append(f"{drop['time']:>13.6g}{step}  {as_loss(level):>13}  {'  '.join(who)}")
    if len(drops) < len(levels) - 1:
        missing = counted(len(levels) - 1 - len(drops), "drop" if not drops else "later drop")
        lines.append(f"no time is given for {missing}: {reason}")
    return lines


def as_loss(value: float) -> str:
    return f"{value:.8f}" if 1e-4 < value < 1e4 else f"{value:.6g}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
