"""From the published script's flags to an `Experiment`, and back."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser

from .. import Experiment, eigenvalues_by_name
from ._flags import MODELS, SCHEMES, TODAY, Published, add_published_flags, check


def experiment_of(flags: Published) -> Experiment:
    """Return the experiment that the published flags describe, by the script's conventions.

    Inputs of a sample are centered and task vectors whitened; attention is not divided, or with `--vary_len` by the
    number of tokens, over all context lengths.

    **Arguments:**

    - `flags`: the flags.

    **Returns:** the experiment. `InvalidInput` is raised, in the words of the flags, where they describe none.

    **Example:**

    >>> from stepwell.experiments.published import Published, experiment_of
    >>> experiment = experiment_of(Published(model="attnS", head_num=5, lr=0.02))
    >>> experiment.model.heads, experiment.model.scheme, experiment.training.rate, experiment.task.context
    (5, 'stacked', 0.02, 31)
    """
    check(flags)
    task: dict[str, Any] = {
        "kind": "regression" if flags.icl == 1 else "mixture",
        "spectrum": "white" if flags.white_cov else "published",
        "dim": flags.in_dim,
        "context": list(range(1, flags.seq_len)) if flags.vary_len else flags.seq_len - 1,
        "outputs": flags.out_dim,
        "centered": True,
    }
    task |= {"whitened": True} if flags.icl == 1 else {"in_context": float(flags.icl)}
    kind = MODELS[flags.model]
    model = {"kind": kind, "heads": flags.head_num, "scale": flags.init}
    model["normalization"] = "1/tokens" if flags.vary_len else "none"
    if kind != "mlp":
        model["activation"] = "softmax" if flags.softmax else "linear"
    if kind == "separate":
        model |= {"rank": flags.rank, "scheme": flags.scheme}
    record = {"test_sequences": flags.testset_size} if flags.testset_size else {}
    record |= {"value_weights": True} if flags.track_value else {}
    return Experiment(
        task=task,
        model=model,
        objective={"kind": "sampled" if flags.softmax else "moments", "sequences": flags.trainset_size},
        training={"kind": "descent", "rate": flags.lr, "steps": flags.epoch},
        record=record,
        seed=flags.seed,
    )


def experiment_of_command(words: Sequence[str]) -> Experiment:
    """Return the experiment of a command of the published script.

    **Arguments:**

    - `words`: what follows `python train.py`, with the script's abbreviations.

    **Returns:** the experiment.

    **Example:**

    >>> from stepwell.experiments.published import experiment_of_command
    >>> experiment_of_command(["--model", "attnM", "--head", "8", "--init", "1e-6", "--show"]).model.heads
    8
    """
    parser = Parser(prog="train.py", add_help=False, allow_abbrev=True)
    add_published_flags(parser)
    return experiment_of(Published.of(parser.parse_args(list(words))))


def published_flags(experiment: Experiment) -> dict[str, Any]:
    """Return the flags of the published script that describe an experiment.

    **Arguments:**

    - `experiment`: the experiment.

    **Returns:** all flags that decide what is trained, by name. `InvalidInput` is raised if the script cannot train it.

    **Example:**

    >>> from stepwell.experiments.published import experiment_of_command, published_flags
    >>> flags = published_flags(experiment_of_command(["--head", "8", "--lr", "0.02"]))
    >>> flags["head_num"], flags["lr"], flags["seed"]
    (8, 0.02, 10)
    """
    task, model, record = experiment.task, experiment.model, experiment.record
    names = {kind: name for name, kind in MODELS.items()}
    if task.kind not in ("regression", "mixture") or model.kind not in names:
        raise InvalidInput(f"the published script has no task {task.kind} with the model {model.kind}")
    dim, context = len(task.eigenvalues), task.context
    flags = Published(
        epoch=experiment.training.get("steps") or 1,
        lr=experiment.training.get("rate", 1.0),
        seed=experiment.seed,
        icl=task.get("in_context", 1),
        trainset_size=experiment.objective.get("sequences", dim + 1),
        testset_size=record.test_sequences,
        white_cov=dim > 1 and task.eigenvalues == eigenvalues_by_name("white", dim),
        vary_len=model.normalization == "1/tokens",
        seq_len=(context if isinstance(context, int) else max(context)) + 1,
        in_dim=dim,
        out_dim=task.outputs,
        cubic_feat=model.kind == "mlp",
        model=names[model.kind],
        softmax=model.get("activation") == "softmax",
        rank=model.get("rank", 1),
        head_num=model.heads,
        init=model.scale,
        start=TODAY if model.get("scheme", SCHEMES[-1]) == SCHEMES[-1] else model.scheme,
        track_value=record.value_weights,
    )
    made, wanted = experiment_of(flags).canonical(), experiment.canonical()
    different = sorted(name for name in {*made, *wanted} if made.get(name) != wanted.get(name))
    if different:
        listed = ", ".join(f"{name} is {wanted.get(name)}, not {made.get(name)}" for name in different[:3])
        raise InvalidInput(f"the published script cannot train this experiment: {listed}")
    return dataclasses.asdict(flags)
