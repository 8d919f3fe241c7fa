"""What the theory of linear attention says about a task and initial weights, as one document and as tables."""

from typing import Any

import numpy as np

from stepwell._kinds import KINDS, Kind
from stepwell.theory import Regression, linear

from ._predict_format import as_loss, counted

TIME_UNIT = "t/tau of the flow tau dW/dt = -1/2 dL/dW, attention divided by N; a step of rate r lasts 2r"


def predict_linear(task: Regression, model: str | None, start: dict[str, Any]) -> dict[str, Any]:
    """The JSON document. Indices in it count from 1. The eigenvectors of the task are the axes."""
    kind = None if model is None else KINDS[model]
    learned = _plateaus(task, kind, start)
    drops = linear.Drops() if kind is None else _predictor(kind).drops(task, _weights(task, kind, start))
    levels = linear.levels(task)
    modes = linear.modes(task)
    columns = zip(modes.variances, modes.task_variances, modes.gains, strict=True)
    return {
        "task": {
            "eigenvalues": np.diag(task.covariance).tolist(),
            "task_eigenvalues": np.diag(task.task_covariance).tolist(),
            "context": list(task.lengths.counts),
            "noise_variance": task.noise_variance,
        },
        "model": None if model is None else {"name": model, "activation": "linear", **start},
        "components_count_from": 1,
        "heads_count_from": 1,
        "components": [
            {"component": d, "eigenvalue": float(lam), "task_eigenvalue": float(omega), "gain": float(gain)}
            for d, (lam, omega, gain) in enumerate(columns, start=1)
        ],
        "levels": [float(levels[m]) for m in learned],
        "subsets": [list(range(1, m + 1)) for m in learned],
        "drops": [
            {"time": drop.time, "head": _from_1(drop.head), "component": _from_1(drop.component)} for drop in drops
        ],
        "drops_missing": drops.reason or None,
        "final_loss": float(levels[learned[-1]]),
        "time_unit": TIME_UNIT,
    }


def tables(predictions: dict[str, Any]) -> str:
    task, model = predictions["task"], predictions["model"]
    dim, context = len(task["eigenvalues"]), " ".join(map(str, task["context"]))
    noise = f", noise variance {task['noise_variance']:g}" if task["noise_variance"] else ""
    lines = [f"in-context regression in dimension {dim}, context {context}{noise}", ""]
    lines.append("component  eigenvalue  task eigenvalue        gain")
    for row in predictions["components"]:
        variances = f"{row['eigenvalue']:>10.6g}  {row['task_eigenvalue']:>15.6g}"
        lines.append(f"{row['component']:>9}  {variances}  {as_loss(row['gain']):>10}")
    lines += ["", "      loss  components learned"]
    for level, subset in zip(predictions["levels"], predictions["subsets"], strict=True):
        lines.append(f"{as_loss(level):>10}  {_listed(subset)}")
    if model is not None:
        lines += ["", _model_line(model)]
        lines += _drop_lines(predictions["drops"], predictions["levels"], predictions["drops_missing"])
    lines += ["", f"final loss {as_loss(predictions['final_loss'])}"]
    return "\n".join(lines)


def _listed(subset: list[int]) -> str:
    if len(subset) < 3:
        return " ".join(map(str, subset)) or "none"
    return f"{subset[0]} to {subset[-1]}"


def _model_line(model: dict[str, Any]) -> str:
    rank = f" of rank {model['rank']}" if "rank" in model else ""
    heads = counted(model["heads"], "head")
    balanced = ", balanced" if model["balanced"] else ""
    return f"linear {model['name']}, {heads}{rank}, init {model['init']:g}, seed {model['seed']}{balanced}"


def _drop_lines(drops: list[dict[str, Any]], levels: list[float], reason: str | None) -> list[str]:
    """The table of drops; the time of a drop is when the loss is halfway down."""
    lines = ["drop at t/tau        loss to  head  component"]
    for drop, level in zip(drops, levels[1:], strict=False):
        head = "all" if drop["head"] is None else drop["head"]
        component = "all" if drop["component"] is None else drop["component"]
        lines.append(f"{drop['time']:>13.6g}  {as_loss(level):>13}  {head:>4}  {component:>9}")
    if len(drops) < len(levels) - 1:
        missing = counted(len(levels) - 1 - len(drops), "later drop")
        lines.append(f"no time is given for {missing}: {reason or 'no head is left'}")
    return lines


def _plateaus(task: Regression, kind: Kind | None, start: dict[str, Any]) -> list[int]:
    """How many components are learned on each plateau."""
    most = len(linear.fixed_points(task).path()) - 1
    if kind is None:
        return list(range(most + 1))
    return _predictor(kind).plateaus(most, start["heads"] * _pairs(task, kind, start))


def _from_1(index: int | None) -> int | None:
    return None if index is None else index + 1


def _predictor(kind: Kind) -> linear.AbstractPredictor:
    assert kind.theory is not None, f"{kind.name} has no theory"
    return linear.PREDICTORS[kind.theory]


def _pairs(task: Regression, kind: Kind, start: dict[str, Any]) -> int:
    return kind.pairs(task.covariance.shape[0], start.get("rank", 1))


def _weights(task: Regression, kind: Kind, start: dict[str, Any]) -> dict[str, np.ndarray]:
    """Initial weights as `stepwell.models` draws them, in the form that the theory takes."""
    from stepwell._memory import require_memory

    dim, heads = task.covariance.shape[0], start["heads"]
    require_memory(
        _predictor(kind).working_bytes(heads, _pairs(task, kind, start), dim),
        what=f"a prediction for {heads} heads",
        instead="take a smaller --heads or --rank",
    )
    import jax

    from stepwell.models import class_of

    options = kind.start_options(rank=start.get("rank", 1))
    model_class = class_of(kind)
    made = model_class.random(dim=dim, heads=heads, scale=start["init"], key=jax.random.key(start["seed"]), **options)
    model = made.balanced() if start["balanced"] else made
    return model_class.theory_weights({name: np.asarray(value) for name, value in model.weights().items()})
