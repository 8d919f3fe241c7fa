"""`stepwell predict`: the theory alone, of linear or of softmax attention. Help needs no numbers, so imports none."""

import argparse
import json
from typing import Any

from stepwell import _kinds
from stepwell._kinds import KINDS
from stepwell._parser import Parser
from stepwell._task_file import add_file_flag
from stepwell._task_flags import add_task_flags

_NEEDED = {"softmax": False, "vary_len": False, "cubic_feat": False, "white_cov": False, "out_dim": 1, "icl": 1}
"""What must be so in a file for `stepwell train` that the theory is to describe."""
_IN_OTHER_WORDS = {"in_dim", "seq_len", "head_num"}
"""Flags that only `stepwell train` has, for what is called otherwise here."""


def configure(parser: Parser) -> None:
    kinds = [KINDS[name] for name in _kinds.names(predicted=True)]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "What theory says before anything is trained.\n"
        "--eigenvalues or --spectrum: linear attention on one regression. The levels of the loss, the components\n"
        "learned on each plateau and, for given initial weights, when the loss drops and which head makes it.\n"
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
    add_file_flag(parser, task, _aside(), _NEEDED)
    add_task_flags(task, one="linear attention", several="softmax attention")
    absent: Any = {"default": argparse.SUPPRESS}
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


def _aside() -> list[str]:
    """Keys of a file that only `stepwell train` reads."""
    from ._train import configure as configure_train

    parser = Parser(prog="stepwell train")
    configure_train(parser)
    return [action.dest for action in parser._actions if action.dest not in _IN_OTHER_WORDS]
