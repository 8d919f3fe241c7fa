"""`stepwell predict`: what theory says of an experiment, before anything is trained."""

import argparse
import json
import sys

from stepwell._util.parser import Parser
from stepwell.experiments import add_experiment_flags, experiment_from

from ._flags import renamed


def configure(parser: Parser) -> None:
    """The flags of an experiment: those of `stepwell train`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "What theory says of an experiment, from its own task, sample and initial weights, before anything is\n"
        "trained. The flags are those of `stepwell train`, and mean the same run.\n"
        "Linear attention on one regression: the levels of the loss, the components learned on each plateau, when\n"
        "the loss drops, and which head makes it. Polynomial networks, and ReLU networks on orthogonal points: the\n"
        "same, of units. Softmax attention on several regressions (the task multitask): the\n"
        "loss where the flow ends, the best of a single head, a lower bound, the Bayes risk, the weights in the end,\n"
        "and when each task emerges. Exit status: 0 done, 1 there is no theory of the experiment, 2 bad usage."
    )
    parser.epilog = (
        "Components count from 1 in falling order of the loss they take away, and heads from 1. The time of a drop is\n"
        "when the loss is halfway down; it is exact as the initialization scale becomes small. The unit is t/τ of the\n"
        "flow τ dW/dt = -1/2 dL/dW with attention divided by N, with steps beside where there are steps.\n"
        "Several regressions: losses are sums over them, to leading order in context and dimension unless called\n"
        "exact; the Bayes risk is exact. The flow is that from the initial weights of the seed, which are balanced;\n"
        "where tasks choose one head they share it, and it ends above the best division among heads. The budget of\n"
        "the lower bound was found numerically. Emergence has a lower and an upper bound, for\n"
        "one effective head and for H effective heads."
    )
    add_experiment_flags(parser)
    parser.renamed = renamed()
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Print the prediction; return the exit status."""
    experiment = experiment_from(arguments)
    for line in experiment.remarks():
        print(f"stepwell predict: {line}", file=sys.stderr)
    prediction = experiment.predict()
    named = {"experiment": experiment.to_dict(), "name": experiment.name}
    if not prediction.document:
        if arguments.json:
            print(json.dumps({**named, "reason": prediction.reason}, indent=2))
        print(f"stepwell predict: {prediction.reason}", file=sys.stderr)
        return 1
    print(json.dumps({**named, **prediction.document}, indent=2) if arguments.json else prediction)
    return 0
