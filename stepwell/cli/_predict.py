"""`stepwell predict`: the theory alone, of linear or of softmax attention. Help needs no numbers, so imports none."""

import argparse
import json
from typing import Any

from stepwell import _kinds
from stepwell._kinds import KINDS


def configure(parser: argparse.ArgumentParser) -> None:
    kinds = [KINDS[name] for name in _kinds.names(predicted=True)]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "What theory says before anything is trained.\n"
        "--eigenvalues: linear attention on one regression. The levels of the loss, the components learned on each\n"
        "plateau and, for given initial weights, when the loss drops and which head makes it.\n"
        "--dims: softmax attention on several regressions at once. The loss where the flow ends, the best of a single\n"
        "head, a lower bound, the Bayes risk, the weights in the end, and when each task emerges."
    )
    parser.epilog = (
        "Linear attention. Components count from 1 in falling order of the loss they take away (that of the\n"
        "eigenvalues, unless --task-eigenvalues say otherwise); heads count from 1. With --model only that model's\n"
        "plateaus are listed: attnM falls at once from the first to the last, attnS stops at each.\n"
        "A drop's time is when the loss is halfway down; it is exact as --init becomes small. The unit is t/tau of\n"
        "the flow tau dW/dt = -1/2 dL/dW with attention divided by N; a step of rate r lasts 2r.\n"
        f"The initial weights are those of {_kinds.listed(kind.class_name for kind in kinds)} in stepwell.models,\n"
        ".random(dim=D, heads=HEADS, scale=INIT, key=jax.random.key(SEED)), and the eigenvectors are the axes:\n"
        "the run that is predicted can be made.\n"
        "\n"
        "Softmax attention. Losses are sums over the tasks, to leading order in context and dimension unless called\n"
        "exact. The flow gives each task a head of its own, so it needs as many heads as tasks; with fewer, the best\n"
        "division of the tasks among heads stands in its place. The lower bound is for weights of any sign, and its\n"
        "budget was found numerically. Emergence is that of a head whose scores start at --init, with mu/omega on the\n"
        "ray of the warm-up: a lower and an upper bound, for one effective head and for H effective heads.\n"
        "The unit of time is that of dW/dt = -c/2 dL/dW for the squared loss L, with c = --loss-factor."
    )
    task = parser.add_argument_group("task")
    form = task.add_mutually_exclusive_group(required=True)
    form.add_argument(
        "--eigenvalues",
        type=float,
        nargs="+",
        metavar="VALUE",
        help="linear attention: of the covariance of the inputs",
    )
    form.add_argument(
        "--dims", type=int, nargs="+", metavar="DIM", help="softmax attention: the dimension of each regression"
    )
    absent: Any = {"default": argparse.SUPPRESS}
    task.add_argument(
        "--context",
        type=int,
        nargs="+",
        metavar="N",
        help="context pairs; several values: a uniform mixture of lengths, linear only (default: 31; 100 with --dims)",
    )
    task.add_argument(
        "--task-eigenvalues",
        type=float,
        nargs="+",
        metavar="VALUE",
        **absent,
        help="of the covariance of the task vectors, in the order of --eigenvalues (default: all 1)",
    )
    task.add_argument(
        "--strengths",
        type=float,
        nargs="+",
        metavar="VALUE",
        **absent,
        help="variance of the task vectors, one for all --dims or one for each (default: 1)",
    )
    task.add_argument(
        "--convention",
        choices=("per-coordinate", "total"),
        **absent,
        help="whether a strength is that of a coordinate, or of the whole label (default: per-coordinate)",
    )
    task.add_argument(
        "--noise", type=float, default=0.0, metavar="VARIANCE", help="variance of label noise (default: 0)"
    )
    model = parser.add_argument_group("model and initial weights")
    model.add_argument(
        "--model",
        choices=[kind.name for kind in kinds],
        **absent,
        help=f"linear: key and query {', or '.join(kind.description for kind in kinds)}; for times",
    )
    model.add_argument(
        "--heads", type=int, **absent, help="heads (default: one for each eigenvalue, or for each of --dims)"
    )
    ranked = _kinds.listed(kind.name for kind in kinds if kind.has_rank)
    model.add_argument(
        "--rank", type=int, **absent, help=f"pairs of key and query in a head, for {ranked} (default: 1)"
    )
    model.add_argument(
        "--init",
        type=float,
        **absent,
        help="linear: standard deviation of each weight; softmax: omega at the start (default: 0.001)",
    )
    model.add_argument("--seed", type=int, **absent, help="seed of the initial weights (default: 0)")
    model.add_argument(
        "--balanced", action="store_true", **absent, help="rescale the weights so that what the flow conserves is zero"
    )
    model.add_argument(
        "--loss-factor", type=float, **absent, help="softmax: c of the flow dW/dt = -c/2 dL/dW (default: 2)"
    )
    model.add_argument("--embedding", type=int, **absent, help="softmax: width of a head (default: the sum of --dims)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def run(arguments: argparse.Namespace) -> int:
    from ._predict_request import predicted

    predictions, tables = predicted(arguments)
    print(json.dumps(predictions, indent=2) if arguments.json else tables(predictions))
    return 0
