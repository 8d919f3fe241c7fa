"""What the theory of linear attention says about a task and initial weights, as one document and as tables."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell._errors import InvalidInput
from stepwell.theory import IntegrationFailed, linear

from ._predict_format import as_loss, counted

TIME_UNIT = "t/tau of the flow tau dW/dt = -1/2 dL/dW, attention divided by N; a step of rate r lasts 2r"


@dataclass(frozen=True)
class _Lengths:
    counts: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class PlainTask:
    """As `stepwell.tasks.InContextRegression`, which would need JAX; the eigenvectors are the axes."""

    covariance: np.ndarray
    task_covariance: np.ndarray
    noise_variance: float
    lengths: _Lengths
    outputs: int = 1

    @classmethod
    def of(cls, variances: list[float], task_variances: list[float], context: list[int], noise: float) -> "PlainTask":
        """Lengths in `context` are equally likely."""
        lengths = _Lengths(tuple(context), (1 / len(context),) * len(context))
        return cls(np.diag(variances), np.diag(task_variances), noise, lengths)


def predict_linear(task: PlainTask, model: str | None, start: dict[str, Any]) -> dict[str, Any]:
    """The JSON document. Indices in it count from 1."""
    learned = _plateaus(task, model, start)
    try:
        drops = [] if model is None else _drops(task, model, start)
    except IntegrationFailed as error:
        raise InvalidInput(str(error)) from None
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
        "drops": drops,
        "final_loss": float(levels[learned[-1]]),
        "time_unit": TIME_UNIT,
    }


def tables(found: dict[str, Any]) -> str:
    task, model = found["task"], found["model"]
    dim, context = len(task["eigenvalues"]), " ".join(map(str, task["context"]))
    noise = f", noise variance {task['noise_variance']:g}" if task["noise_variance"] else ""
    lines = [f"in-context regression in dimension {dim}, context {context}{noise}", ""]
    lines.append("component  eigenvalue  task eigenvalue        gain")
    for row in found["components"]:
        variances = f"{row['eigenvalue']:>10.6g}  {row['task_eigenvalue']:>15.6g}"
        lines.append(f"{row['component']:>9}  {variances}  {as_loss(row['gain']):>10}")
    lines += ["", "      loss  components learned"]
    for level, subset in zip(found["levels"], found["subsets"], strict=True):
        lines.append(f"{as_loss(level):>10}  {_listed(subset)}")
    if model is not None:
        lines += ["", _model_line(model)]
        lines += _drop_lines(found["drops"], found["levels"])
    lines += ["", f"final loss {as_loss(found['final_loss'])}"]
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


def _drop_lines(drops: list[dict[str, Any]], levels: list[float]) -> list[str]:
    """Times are those at which the loss is halfway down."""
    lines = ["drop at t/tau        loss to  head  component"]
    for drop, level in zip(drops, levels[1:], strict=False):
        head = "all" if drop["head"] is None else drop["head"]
        component = "all" if drop["component"] is None else drop["component"]
        lines.append(f"{drop['time']:>13.6g}  {as_loss(level):>13}  {head:>4}  {component:>9}")
    if len(drops) < len(levels) - 1:
        lines.append(f"the later {len(levels) - 1 - len(drops)} do not come from these weights in any useful time")
    return lines


def _plateaus(task: PlainTask, model: str | None, start: dict[str, Any]) -> list[int]:
    """How many components are learned on each plateau."""
    most = len(linear.fixed_points(task).path()) - 1
    if model == "attnM":
        return [0, most]
    if model == "attnS":
        most = min(most, start["heads"] * start["rank"])
    return list(range(most + 1))


def _drops(task: PlainTask, model: str, start: dict[str, Any]) -> list[dict[str, Any]]:
    weights = _weights(model, task.covariance.shape[0], start)
    if model == "attnM":
        begun = linear.merged_start(task, weights["value"], weights["key_query"])
        time = linear.half_drop_time(task, *begun)
        return [{"time": time, "head": None, "component": None}] if np.isfinite(time) else []
    found = linear.drop_schedule(task, weights["value"], weights["key"], weights["query"])
    return [{"time": drop.time, "head": drop.head + 1, "component": drop.component + 1} for drop in found]


def _weights(model: str, dim: int, start: dict[str, Any]) -> dict[str, np.ndarray]:
    """v, and U or k and q, as the models room draws them."""
    from stepwell._memory import require_memory

    heads, pairs = start["heads"], start.get("rank", dim)
    # SciPy keeps the banded Jacobian of all heads.
    width = 1 + 2 * pairs * dim
    require_memory(
        8 * heads * width * (3 * width if model == "attnS" else 1),
        what=f"a prediction for {heads} heads",
        instead="take a smaller --heads or --rank",
    )
    import jax

    from stepwell.models import MergedAttention, SeparateAttention

    kind: Any = MergedAttention if model == "attnM" else SeparateAttention
    options = {"dim": dim, "heads": heads, "scale": start["init"]}
    options |= {} if model == "attnM" else {"rank": start["rank"]}
    made = kind.random(**options, key=jax.random.key(start["seed"]))
    found = made.balanced() if start["balanced"] else made
    found = {name: np.asarray(value) for name, value in found.weights().items()}
    if model == "attnM":
        return {"value": found["value"][:, 0, dim], "key_query": found["key_query"][:, :dim]}
    return {"value": found["value"][:, 0, dim], "key": found["key"][:, :, :dim], "query": found["query"]}
