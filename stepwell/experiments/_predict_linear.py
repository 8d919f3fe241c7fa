"""What the theory of linear attention says of an experiment: levels, components, and drops from the initial weights."""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.paper_time import TIME_NAME, weight_factor
from stepwell.models import theory_of
from stepwell.theory import IntegrationFailed, linear

from ._experiment import Experiment
from ._keys import Keys
from ._kind import find_kind
from ._prediction import DropForecast, Level

FINITE = ("moments", "sampled")
"""Objectives over finitely many sequences."""
NO_UNCERTAINTY = "how far off times are is not known"


class Described(NamedTuple):
    """What the theory of linear attention starts from: its own task, which may be that of the sample, and weights."""

    predictor: linear.AbstractPredictor
    own_task: Any
    """That of the experiment."""
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


def describe(experiment: Experiment, task: Any, model: Any) -> Described:
    """The theory of a task and initial weights, with its levels."""
    predictor = linear.PREDICTORS[experiment.theory]
    nearest, remark = theory_task(experiment, task)
    losses = linear.levels(nearest)
    made = Described(predictor, task, nearest, theory_weights(experiment, model), (), remark)
    learned = predictor.plateaus(int(np.sum(np.diff(losses) < 0)), made.heads * made.pairs)
    return made._replace(levels=tuple(Level(float(losses[m]), m) for m in learned))


def drops_of(experiment: Experiment, theory: Described) -> tuple[tuple[DropForecast, ...], str]:
    """The predicted drops, and why some or all are missing."""
    training = experiment.training
    per_step = None
    if training.kind == "descent":
        if (training.optimizer, training.schedule) != ("sgd", "constant"):
            return (), "times are predicted for gradient descent at a constant rate, and not for other optimizers"
        per_step = experiment.time_scale.of_steps(1.0, training.rate)
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
    drops = []
    for drop in made:
        step = None if per_step is None else float(drop.time) / per_step
        head, component = (None if place is None else place + 1 for place in (drop.head, drop.component))
        flows = training.kind == "flow" and experiment.objective.kind not in FINITE
        off = float(drop.uncertainty) if flows else None
        drops.append(DropForecast(float(drop.time), off, step, head, component))
    seen = len(theory.levels) - 1  # what is below rounding is no level, and needs no reason
    return tuple(drops[:seen]), "" if len(drops) >= seen else made.reason or ""


def theory_weights(experiment: Experiment, model: Any) -> dict[str, np.ndarray]:
    """The weights of a model as the theory takes them, for attention divided by N."""
    if theory_of(type(model)) != experiment.theory:
        raise InvalidInput(
            f"the model kind {experiment.model.kind} is registered with theory {experiment.theory}, which its "
            f"class {type(model).__name__} does not declare; write declared_form = 'separate' in a subclass of "
            "SeparateAttention, or register it without theory"
        )
    normalization, context, factor = experiment.normalization, experiment.task.get("context"), 1.0
    if normalization != "1/N":
        factor = weight_factor(normalization, "1/N", length=context, factors=type(model).factors)
    weights = {name: factor * np.asarray(value) for name, value in model.weights().items()}
    return type(model).theory_weights(weights)


def sample_of(experiment: Experiment) -> Any:
    """Return the moments of the sequences that an experiment trains on, for attention divided by N.

    **Arguments:**

    - `experiment`: the experiment.

    **Returns:** the `Moments`; None if the sequences are infinitely many.

    **Example:**

    >>> sw.experiments.sample_of(sw.Experiment()) is None
    True
    """
    if experiment.objective.kind not in FINITE:
        return None
    return _sample(experiment, find_kind("task", experiment.task.kind).build)


@functools.lru_cache(maxsize=1)
def _sample(experiment: Experiment, builder: Any) -> Any:
    """Levels, drops, course and comparison of a run all read them. A task that is registered anew is drawn anew."""
    from stepwell.objectives import Moments

    task, count, key = experiment.build_task(), experiment.objective.sequences, Keys(experiment.seed).train
    return Moments.of_task(task, count, features="cubic", normalization="1/N", progress=False, key=key)


def theory_task(experiment: Experiment, task: Any) -> tuple[Any, str]:
    """Return the task whose closed form is nearest to what an experiment trains on.

    **Arguments:**

    - `experiment`: the experiment.
    - `task`: its task, as `build_task` returned it.

    **Returns:** the task, of the sample where there is one; and a remark that says so.

    **Example:**

    >>> experiment = sw.Experiment(task={"dim": 2}, objective={"kind": "moments", "sequences": 100})
    >>> sw.experiments.theory_task(experiment, experiment.build_task())[1]
    'predicted for the 100 sequences trained on; how far off times are is not known'
    """
    from stepwell.analysis import sample_task

    sample = sample_of(experiment)
    if sample is None:
        return task, ""
    try:
        nearest = sample_task(task, sample, commuting=experiment.theory == "merged")
    except InvalidInput as error:
        return task, f"predicted for infinitely many sequences: {error}; {NO_UNCERTAINTY}"
    return nearest, f"predicted for the {experiment.objective.sequences} sequences trained on; {NO_UNCERTAINTY}"


def document(experiment: Experiment, theory: Described, drops: tuple[DropForecast, ...], reason: str) -> dict[str, Any]:
    """The JSON document."""
    return levels_alone(experiment, theory.levels, reason) | {
        "components_count_from": 1,
        "heads_count_from": 1,
        "components": _components(theory.own_task),
        "drops": [dataclasses.asdict(drop) for drop in drops],
        "remark": theory.remark or None,
    }


def levels_alone(experiment: Experiment, levels: tuple[Level, ...], reason: str) -> dict[str, Any]:
    """The JSON document where nothing is known but the levels; the reason says why there are no drops."""
    return {
        "experiment": experiment.to_dict(),
        "name": experiment.name,
        "levels": [level.loss for level in levels],
        "learned": [level.learned for level in levels],
        "drops": [],
        "drops_missing": reason or None,
        "final_loss": levels[-1].loss,
        "time_unit": experiment.time_scale.unit,
    }


def _components(task: Any) -> list[dict[str, Any]]:
    """Components in the order in which their gains fall; those of a task without covariances, or whose covariances do
    not commute, have no eigenvalues of their own."""
    try:
        modes = linear.modes(task)
        columns = zip(modes.variances.tolist(), modes.task_variances.tolist(), modes.gains.tolist(), strict=True)
    except InvalidInput:
        columns = ((None, None, gain) for gain in linear.components(task).gains.tolist())
    return [
        {"component": d, "eigenvalue": lam, "task_eigenvalue": omega, "gain": gain}
        for d, (lam, omega, gain) in enumerate(columns, start=1)
    ]


def tables(document: dict[str, Any]) -> str:
    """The document as text."""
    task, model = document["experiment"]["task"], document["experiment"]["model"]
    lines = _component_lines(task, document["components"]) if "components" in document else [f"the task {task['kind']}"]
    lines += ["", "      loss  components learned"]
    for level, learned in zip(document["levels"], document["learned"], strict=True):
        lines.append(f"{as_loss(level):>10}  {({0: 'none', 1: '1', 2: '1 2'}).get(learned, f'1 to {learned}')}")
    lines += ["", _model_line(model, document["experiment"]["seed"])]
    lines += _drop_lines(document)
    lines += ["", f"final loss {as_loss(document['final_loss'])}"]
    return "\n".join(lines + ([document["remark"]] if document.get("remark") else []))


def _component_lines(task: dict[str, Any], components: list[dict[str, Any]]) -> list[str]:
    """The table of components of in-context regression."""
    context = task.get("context")
    lengths = " ".join(map(str, context)) if isinstance(context, list) else context
    noise = f", noise variance {task['noise']:g}" if task.get("noise") else ""
    lines = [f"in-context regression in dimension {len(components)}, context {lengths}{noise}", ""]
    lines.append("component  eigenvalue  task eigenvalue        gain")
    for row in components:
        variances = f"{number(row['eigenvalue']):>10}  {number(row['task_eigenvalue']):>15}"
        lines.append(f"{row['component']:>9}  {variances}  {as_loss(row['gain']):>10}")
    return lines


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _model_line(model: dict[str, Any], seed: int) -> str:
    rank = f" of rank {model['rank']}" if "rank" in model else ""
    heads = "".join(f", {counted(model[f'{one}s'], one)}{rank}" for one in ("head", "unit") if f"{one}s" in model)
    scale = f", initialization scale {model['scale']:g}" if "scale" in model else ""
    divided = {"1/N": "divided by N", "none": "unnormalized", "1/tokens": "divided by tokens"}
    attention = f", attention {divided[model['normalization']]}" if "normalization" in model else ""
    balanced = ", balanced" if model.get("balanced") else ""
    return f"{model['kind']}{heads}{scale}{attention}, seed {seed}{balanced}"


def _drop_lines(document: dict[str, Any]) -> list[str]:
    """The table of drops; the time of a drop is when the loss is halfway down."""
    drops, levels, reason = document["drops"], document["levels"], document["drops_missing"]
    if not drops and len(levels) > 1:
        return [f"no time is given for {counted(len(levels) - 1, 'drop')}: {reason}"]
    stepped = any(drop["step"] is not None for drop in drops)
    lines = [f"{'drop at ' + TIME_NAME:>13}{'±':>10}{'       step' if stepped else ''}        loss to  head  component"]
    for drop, level in zip(drops, levels[1:], strict=False):
        step = f"  {drop['step']:>9.0f}" if stepped else ""
        head, component = ("all" if drop[name] is None else drop[name] for name in ("head", "component"))
        off = "-" if drop["uncertainty"] is None else format(float(format(drop["uncertainty"], ".1e")), "g")
        time = f"{drop['time']:>13.6g}  {off:>8}"
        lines.append(f"{time}{step}  {as_loss(level):>13}  {head:>4}  {component:>9}")
    if len(drops) < len(levels) - 1:
        missing = counted(len(levels) - 1 - len(drops), "drop" if not drops else "later drop")
        lines.append(f"no time is given for {missing}: {reason}")
    return lines


def as_loss(value: float) -> str:
    return f"{value:.8f}" if 1e-4 < value < 1e4 else f"{value:.6g}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
