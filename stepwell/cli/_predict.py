"""`stepwell predict`: the theory alone. Help and mistakes need no theory, and only initial weights need JAX."""

import argparse
import json
from typing import Any

from stepwell import _check
from stepwell._errors import InvalidInput

_START = {"heads": None, "rank": 1, "init": 1e-3, "seed": 0, "balanced": False}
"""What describes initial weights, and means nothing without a model."""

_LARGEST = 1e50
"""Of eigenvalues and variances, and one over the least: their fifth powers are still numbers."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "What the theory of linear attention says before anything is trained: the levels of the loss, the components\n"
        "learned on each plateau and, for given initial weights, when the loss drops and which head makes it."
    )
    parser.epilog = (
        "Components count from 1 in falling order of the loss they take away (that of the eigenvalues, unless\n"
        "--task-eigenvalues say otherwise); heads count from 1. With --model only that model's plateaus are listed:\n"
        "attnM falls at once from the first to the last, attnS stops at each.\n"
        "A drop's time is when the loss is halfway down; it is exact as --init becomes small. The unit is t/tau of\n"
        "the flow tau dW/dt = -1/2 dL/dW with attention divided by N; a step of rate r lasts 2r.\n"
        "The initial weights are those of MergedAttention or SeparateAttention in stepwell.models,\n"
        ".random(dim=D, heads=HEADS, scale=INIT, key=jax.random.key(SEED)), and the eigenvectors are the axes:\n"
        "the run that is predicted can be made."
    )
    task = parser.add_argument_group("task")
    task.add_argument(
        "--eigenvalues", type=float, nargs="+", required=True, metavar="VALUE", help="of the covariance of the inputs"
    )
    task.add_argument(
        "--context",
        type=int,
        nargs="+",
        default=[31],
        metavar="N",
        help="context pairs; several numbers are lengths equally likely (default: 31)",
    )
    task.add_argument(
        "--task-eigenvalues",
        type=float,
        nargs="+",
        metavar="VALUE",
        help="of the covariance of the task vectors, in the order of --eigenvalues (default: all 1)",
    )
    task.add_argument(
        "--noise", type=float, default=0.0, metavar="VARIANCE", help="variance of label noise (default: 0)"
    )
    model = parser.add_argument_group("model and initial weights, for times of drops")
    model.add_argument("--model", choices=("attnM", "attnS"), help="key and query merged, or separate")
    absent: Any = {"default": argparse.SUPPRESS}
    model.add_argument("--heads", type=int, **absent, help="heads (default: one for each eigenvalue)")
    model.add_argument("--rank", type=int, **absent, help="pairs of key and query in a head, for attnS (default: 1)")
    model.add_argument("--init", type=float, **absent, help="standard deviation of each weight (default: 0.001)")
    model.add_argument("--seed", type=int, **absent, help="seed of the initial weights (default: 0)")
    model.add_argument(
        "--balanced", action="store_true", **absent, help="rescale the weights so that what the flow conserves is zero"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def run(arguments: argparse.Namespace) -> int:
    task = _task(arguments)
    start = _start(arguments, len(arguments.eigenvalues))

    from ._predict_linear import PlainTask, predict_linear

    found = predict_linear(PlainTask.of(*task), arguments.model, start)
    print(json.dumps(found, indent=2) if arguments.json else _tables(found))
    return 0


def _task(arguments: argparse.Namespace) -> tuple[list[float], list[float], list[int], float]:
    lam = [_check.number("--eigenvalues", value, least=1 / _LARGEST, most=_LARGEST) for value in arguments.eigenvalues]
    given = [1.0] * len(lam) if arguments.task_eigenvalues is None else arguments.task_eigenvalues
    omega = [_check.number("--task-eigenvalues", value, least=0.0, most=_LARGEST) for value in given]
    if len(omega) != len(lam):
        raise InvalidInput(f"there are {len(lam)} --eigenvalues and {len(omega)} --task-eigenvalues; give as many")
    if not any(omega):
        raise InvalidInput("--task-eigenvalues are all 0, so there is nothing to learn; give one above 0")
    context = [_check.whole("--context", count) for count in arguments.context]
    return lam, omega, context, _check.number("--noise", arguments.noise, least=0.0, most=_LARGEST)


def _start(arguments: argparse.Namespace, dim: int) -> dict[str, Any]:
    given = {name: getattr(arguments, name) for name in _START if hasattr(arguments, name)}
    if arguments.model is None:
        if given:
            raise InvalidInput(f"--{next(iter(given))} describes initial weights; say of which --model, attnM or attnS")
        return {}
    start = {**_START, "heads": dim, **given}
    if arguments.model == "attnM" and start.pop("rank") != 1:
        raise InvalidInput("--rank is for --model attnS; the merged key and query of attnM have full rank")
    for name in ("heads", "rank"):
        if name in start:
            _check.whole(f"--{name}", start[name])
    _check.whole("--seed", start["seed"], least=0)
    if start["seed"] >= 2**32:
        raise InvalidInput(f"--seed is {start['seed']}; it must be below 2**32")
    _check.number("--init", start["init"], least=1 / _LARGEST, most=_LARGEST)
    if start["balanced"] and start.get("rank", 1) > dim:
        raise InvalidInput(f"--balanced needs a --rank of at most the dimension, {dim}")
    return start


def _tables(found: dict[str, Any]) -> str:
    task, model = found["task"], found["model"]
    dim, context = len(task["eigenvalues"]), " ".join(map(str, task["context"]))
    noise = f", noise variance {task['noise_variance']:g}" if task["noise_variance"] else ""
    lines = [f"in-context regression in dimension {dim}, context {context}{noise}", ""]
    lines.append("component  eigenvalue  task eigenvalue        gain")
    for row in found["components"]:
        variances = f"{row['eigenvalue']:>10.6g}  {row['task_eigenvalue']:>15.6g}"
        lines.append(f"{row['component']:>9}  {variances}  {_loss(row['gain']):>10}")
    lines += ["", "      loss  components learned"]
    for level, subset in zip(found["levels"], found["subsets"], strict=True):
        lines.append(f"{_loss(level):>10}  {_listed(subset)}")
    if model is not None:
        lines += ["", _model_line(model)]
        lines += _drop_lines(found["drops"], found["levels"])
    lines += ["", f"final loss {_loss(found['final_loss'])}"]
    return "\n".join(lines)


def _loss(value: float) -> str:
    return f"{value:.8f}" if 1e-4 < value < 1e4 else f"{value:.6g}"


def _listed(subset: list[int]) -> str:
    if len(subset) < 3:
        return " ".join(map(str, subset)) or "none"
    return f"{subset[0]} to {subset[-1]}"


def _model_line(model: dict[str, Any]) -> str:
    rank = f" of rank {model['rank']}" if "rank" in model else ""
    heads = f"{model['heads']} head" + ("s" if model["heads"] > 1 else "")
    balanced = ", balanced" if model["balanced"] else ""
    return f"linear {model['name']}, {heads}{rank}, init {model['init']:g}, seed {model['seed']}{balanced}"


def _drop_lines(drops: list[dict[str, Any]], levels: list[float]) -> list[str]:
    """Times are those at which the loss is halfway down."""
    lines = ["drop at t/tau        loss to  head  component"]
    for drop, level in zip(drops, levels[1:], strict=False):
        head = "all" if drop["head"] is None else drop["head"]
        component = "all" if drop["component"] is None else drop["component"]
        lines.append(f"{drop['time']:>13.6g}  {_loss(level):>13}  {head:>4}  {component:>9}")
    if len(drops) < len(levels) - 1:
        lines.append(f"the later {len(levels) - 1 - len(drops)} do not come from these weights in any useful time")
    return lines
