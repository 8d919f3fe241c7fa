"""Refuse an experiment that would not fit in memory, before anything of it is built."""

from typing import Any

from stepwell._util.arguments import checked
from stepwell._util.memory import require_memory

from ._experiment import Experiment
from ._kind import find_kind, note_of
from ._kinds._models import dimension, supervised


@checked
def check_memory(experiment: Experiment, seeds: int) -> None:
    """What `Experiment.check_memory` refuses."""
    record, flowing = experiment.record, experiment.training.kind == "flow"
    copies = record.points if flowing else record.snapshots
    weights = check_weights(experiment, seeds * copies, "fewer snapshots or fewer seeds")
    dim, heads, outputs = sizes(experiment)
    tests = 2 if record.test_sequences else 0
    curves = 1 + tests + (heads if record.value_weights else 0)
    require_memory(
        4 * 8 * seeds * record.points * curves,
        what=f"recording {curves} numbers at {record.points} points",
        instead="take fewer steps, points or seeds",
    )
    if flowing:
        require_memory(
            4 * 8 * seeds * weights**2,
            what=f"the Hessian of {weights} weights",
            instead="take fewer heads or a smaller dimension, or the training descent",
        )
    _check_objective(experiment, seeds, dim, heads, outputs, tests)


def check_prediction(experiment: Experiment) -> None:
    """Refuse to predict what would not fit: initial weights, and the moments of the sequences trained on."""
    check_weights(experiment)
    if experiment.objective.kind in ("moments", "sampled"):
        dim, _, outputs = sizes(experiment)
        _require_features(dim * dim * outputs, dim, copies=3, instead="the objective population")


def _require_features(features: int, dim: int, *, copies: int, instead: str) -> None:
    require_memory(
        8 * copies * features**2,
        what=f"the moment matrix of {features} features in dimension {dim}",
        instead=f"take a smaller dimension, or {instead}",
    )


def _check_objective(experiment: Experiment, seeds: int, dim: int, heads: int, outputs: int, tests: int) -> None:
    task, objective, record = experiment.task, experiment.objective, experiment.record
    width, reads_features = dim + outputs, note_of(experiment.model.kind, "reads") == "cubic"
    features = dim * dim * outputs if reads_features else dim * width * (width + 1) // 2
    if objective.kind == "moments" or (objective.kind == "population" and tests):
        _require_features(features, dim, copies=seeds * (3 + tests), instead="the objective sampled")
    if objective.kind == "features":
        patches = experiment.model.get("patches", 1)
        count = patches * (dim // patches) ** experiment.model.get("degree", 1)
        _require_features(count, dim, copies=3 * seeds, instead="a smaller degree")
    context: Any = task.get("context", 1) if find_kind("task", task.kind).is_own else 1
    lengths, tokens = (len(context), max(context) + 1) if isinstance(context, tuple) else (1, context + 1)
    if objective.kind == "examples":
        require_memory(
            4 * 8 * seeds * (objective.examples or 1) * (dim + outputs + heads),
            what=f"training on {objective.examples} examples",
            instead="take fewer examples",
        )
    if objective.kind in ("sampled", "online", "reduced"):
        total, each = objective.get("sequences", objective.get("batch_size")), 4 * tokens * (outputs + heads)
        if objective.kind != "reduced":
            inner = 2 * features if reads_features else tokens * (2 * heads + width)
            total += tests * record.test_sequences
            each = 2 * tokens * (dim + 2 * outputs) + lengths * inner
        require_memory(
            8 * seeds * total * each,
            what=f"training on {total} sequences of {tokens} tokens",
            instead="take fewer sequences or a shorter context",
        )


def check_weights(experiment: Experiment, copies: int = 4, instead: str = "or a smaller rank") -> int:
    """Refuse so many copies of the weights if they would not fit; return how many weights there are, 0 if unknown."""
    dim, heads, outputs = sizes(experiment)
    count = note_of(experiment.model.kind, "weights")
    weights = 0 if count is None else int(count(experiment.model, dim, outputs))
    require_memory(
        8 * (copies * weights + 8 * dim**2),
        what=f"a model of {heads} heads in dimension {dim}",
        instead=f"take fewer heads, a smaller dimension, {instead}",
    )
    return weights


def sizes(experiment: Experiment) -> tuple[int, int, int]:
    """Dimension, heads or units, and outputs."""
    task, model, outputs, heads = experiment.task, experiment.model, 1, 1
    if find_kind("task", task.kind).is_own:
        outputs = len(task["dims"]) if "dims" in task else int(task.get("outputs", 1))
        if supervised(experiment.sections):
            outputs = len(task.get("strengths", (1.0,)))  # at most
    if find_kind("model", model.kind).is_own:
        heads = int(model.get("heads") or model.get("units") or 1)
    return dimension(experiment.sections) or 1, heads, outputs
