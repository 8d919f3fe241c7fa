"""The published training script's flags, their defaults and bounds, as an `Experiment` and back.

Nothing that computes is imported here, so that a mistake in a flag is reported at once.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser

from ._experiment import SEED, Experiment
from ._kind import find_kind
from ._kinds._tasks import eigenvalues_by_name

_MODELS = {"attnM": "merged", "attnS": "separate", "mlp": "mlp"}
"""The script's models, and what they are called here."""
_SCHEMES = ("plain", "per-head", "stacked")
"""Initialization schemes of separate attention, the one that the script has today last."""
_TODAY, _PAPER = "script", "paper"
_LOW_RANK_DIM = 8
"""The dimension in the published figures of low rank, which were made at another time than Fig 3."""
_MOST_LENGTHS = 4096
_SCHEME = (
    "initialization scheme of attnS (the published script has no such flag): "
    f"{_TODAY}, what that does today; {_PAPER}, what its figures were made with, per-head where --in_dim is "
    f"{_LOW_RANK_DIM} (Figs 4 and 12) and plain elsewhere (Fig 3); plain, standard deviation init; per-head, keys and "
    "queries divided by the root of a head's entries; stacked, all by that of all heads' entries"
)


def _flag(group: str, default: Any, text: str, sets: str = "", **options: Any) -> Any:
    """A flag: its group, default and help, the field whose bounds it has (section kind field), options of argparse."""
    how = {"action": "store_true"} if default is False else {"type": type(default), "default": default}
    metadata = {"group": group, "sets": sets.split(), "options": {**how, "help": text, **options}}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Published:
    """The published flags that decide what is trained, as given, and `scheme`, which chooses among its schemes.

    **Example:**

    >>> from stepwell.experiments.published import Published
    >>> flags = Published(model="attnS", head_num=5, lr=0.02)
    >>> flags.name(), flags.experiment().model.heads
    ('attnS_head5_D4_R1_P5000_N32_seed10', 5)
    """

    epoch: int = _flag(
        "training", 6001, "number of gradient steps; the loss is recorded before each", "training descent steps"
    )
    lr: float = _flag("training", 0.001, "learning rate", "training descent rate")
    seed: int = _flag("training", 10, "seed of data, task and initial weights")
    # The file name has the default as 1, a value given as 1.0.
    icl: int | float = _flag(
        "data", 1, "fraction of sequences with a task vector of their own", "task mixture in_context", type=float
    )
    trainset_size: int = _flag("data", 5000, "training sequences", "objective moments sequences")
    testset_size: int = _flag("data", 0, "sequences in each of the two test sets", "record record test_sequences")
    white_cov: bool = _flag("data", False, "white inputs; else eigenvalues in proportion 1..in_dim")
    vary_len: bool = _flag("data", False, "average over context lengths; attention is divided by tokens")
    seq_len: int = _flag("data", 32, "tokens in a sequence, the query included")
    in_dim: int = _flag("data", 4, "dimension of an input", "task regression dim")
    out_dim: int = _flag("data", 1, "labels a token", "task regression outputs")
    cubic_feat: bool = _flag("data", False, "cubic features instead of tokens, for the mlp")
    model: str = _flag(
        "model",
        "attnM",
        "attention with merged (attnM) or separate (attnS) key and query, or the MLP",
        choices=list(_MODELS),
    )
    softmax: bool = _flag("model", False, "softmax attention; else linear")
    rank: int = _flag("model", 1, "rank of key and query, for attnS", "model separate rank")
    head_num: int = _flag("model", 1, "heads", "model separate heads")
    init: float = _flag("model", 0.01, "initialization scale", "model separate scale")
    scheme: str = _flag("model", _TODAY, _SCHEME, choices=[_TODAY, _PAPER, *_SCHEMES])
    track_value: bool = _flag("output", False, "record the value weight of each head at each step")

    @classmethod
    def fields_set(cls) -> dict[str, Any]:
        """Return section, kind and field by flag, for flags that are a field of an experiment as they are."""
        return {flag.name: flag.metadata["sets"] for flag in dataclasses.fields(cls) if flag.metadata["sets"]}

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Published":
        """Return the flags of a parsed command."""
        return cls(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(cls)})

    @classmethod
    def of_command(cls, words: Sequence[str]) -> "Published":
        """Return the flags of a command of the published script.

        **Arguments:**

        - `words`: what follows `python train.py`, with the script's abbreviations.

        **Returns:** the flags.

        **Example:**

        >>> from stepwell.experiments.published import Published
        >>> Published.of_command(["--model", "attnM", "--head", "8", "--init", "1e-6", "--show"]).head_num
        8
        """
        parser = Parser(prog="train.py", add_help=False, allow_abbrev=True)
        add_published_flags(parser)
        return cls.of(parser.parse_args(list(words)))

    @classmethod
    def of_experiment(cls, experiment: Experiment) -> "Published":
        """Return the flags that describe an experiment; `InvalidInput` if the published script cannot train it."""
        task, model, record = experiment.task, experiment.model, experiment.record
        names = {kind: name for name, kind in _MODELS.items()}
        if task.kind not in ("regression", "mixture") or model.kind not in names:
            raise InvalidInput(f"the published script has no task {task.kind} with the model {model.kind}")
        dim, context = len(task.eigenvalues), task.context
        as_they_are = {
            name: getattr(experiment, section).get(field) for name, (section, _, field) in cls.fields_set().items()
        }
        flags = cls(
            **{name: value for name, value in as_they_are.items() if value is not None} | {"in_dim": dim},
            seed=experiment.seed,
            white_cov=dim > 1 and task.eigenvalues == eigenvalues_by_name("white", dim),
            vary_len=model.normalization == "1/tokens",
            seq_len=(context if isinstance(context, int) else max(context)) + 1,
            cubic_feat=model.kind == "mlp",
            model=names[model.kind],
            softmax=model.get("activation") == "softmax",
            scheme=_TODAY if model.get("scheme", _SCHEMES[-1]) == _SCHEMES[-1] else model.scheme,
            track_value=record.value_weights,
        )
        made, wanted = flags.experiment().canonical(), experiment.canonical()
        different = sorted(name for name in {*made, *wanted} if made.get(name) != wanted.get(name))
        if different:
            listed = ", ".join(f"{name} is {wanted.get(name)}, not {made.get(name)}" for name in different[:3])
            raise InvalidInput(f"the published script cannot train this experiment: {listed}")
        return flags

    def experiment(self) -> Experiment:
        """Return the experiment that the flags describe, by the script's conventions.

        Inputs of a sample are centered and task vectors whitened; attention is not divided, or with `--vary_len` by the
        number of tokens, over all context lengths.

        **Returns:** the experiment. `InvalidInput` is raised, in the words of the flags, where they describe none.
        """
        self._check()
        task: dict[str, Any] = {
            "kind": "regression" if self.icl == 1 else "mixture",
            "spectrum": "white" if self.white_cov else "published",
            "dim": self.in_dim,
            "context": list(range(1, self.seq_len)) if self.vary_len else self.seq_len - 1,
            "outputs": self.out_dim,
            "centered": True,
        }
        task |= {"whitened": True} if self.icl == 1 else {"in_context": float(self.icl)}
        kind, normalization = _MODELS[self.model], "1/tokens" if self.vary_len else "none"
        model = {"kind": kind, "heads": self.head_num, "scale": self.init, "normalization": normalization}
        if kind != "mlp":
            model["activation"] = "softmax" if self.softmax else "linear"
        if kind == "separate":
            paper = "per-head" if self.in_dim == _LOW_RANK_DIM else "plain"
            scheme = {_TODAY: _SCHEMES[-1], _PAPER: paper}.get(self.scheme, self.scheme)
            model |= {"rank": self.rank, "scheme": scheme}
        record = {"test_sequences": self.testset_size} if self.testset_size else {}
        record |= {"value_weights": True} if self.track_value else {}
        return Experiment(
            task=task,
            model=model,
            objective={"kind": "sampled" if self.softmax else "moments", "sequences": self.trainset_size},
            training={"kind": "descent", "rate": self.lr, "steps": self.epoch},
            record=record,
            seed=self.seed,
        )

    def _check(self) -> None:
        """Raise `InvalidInput`, with one line, if the flags describe what cannot be trained."""
        for name, (section, kind, field) in self.fields_set().items():
            find_kind(section, kind).fields[field].convert(getattr(self, name), name=f"--{name}")
        SEED.convert(self.seed, name="--seed")
        if not 2 <= self.seq_len <= 10**9:
            raise InvalidInput(f"--seq_len is {self.seq_len}; it must be an integer from 2 to {10**9}")
        if self.vary_len and self.seq_len > _MOST_LENGTHS + 1:
            raise InvalidInput(f"--seq_len is {self.seq_len}; with --vary_len it must be at most {_MOST_LENGTHS + 1}")
        if self.model not in _MODELS:
            raise InvalidInput(f"--model is {self.model}; it must be one of {', '.join(_MODELS)}")
        is_mlp = self.model == "mlp"
        if is_mlp and not self.cubic_feat:
            raise InvalidInput("--model mlp reads cubic features; add --cubic_feat")
        if self.cubic_feat and not is_mlp:
            raise InvalidInput(f"--model {self.model} reads tokens; leave out --cubic_feat, or use --model mlp")
        if self.softmax and is_mlp:
            raise InvalidInput("--model mlp has no attention; leave out --softmax")
        if self.model != "attnS" and self.scheme not in (_TODAY, _PAPER, "plain"):
            raise InvalidInput(
                f"--scheme {self.scheme} is for --model attnS; {self.model} has one scheme, plain: leave out --scheme"
            )
        for name, whitened in {"trainset_size": self.icl == 1, "testset_size": self.testset_size > 0}.items():
            size = getattr(self, name)
            if whitened and size <= self.in_dim:
                raise InvalidInput(
                    f"--{name} is {size}; to whiten task vectors of dimension {self.in_dim} it must be at least "
                    f"{self.in_dim + 1}"
                )

    def remarks(self) -> list[str]:
        """Return a line for each flag that is allowed but without effect, or probably not meant."""
        rank, dim, made = self.rank, self.in_dim, []
        if self.model != "attnS" and rank != 1:
            made.append(f"--rank {rank} has no effect on --model {self.model}, whose key and query have full rank")
        elif rank > dim:
            made.append(f"--rank {rank} is above --in_dim {dim}: rank {dim} can do the same")
        return made + (["--init 0 is a fixed point: the weights will not move"] if self.init == 0 else [])

    def name(self) -> str:
        """Return the published name of a loss file, without its ending."""
        sizes = f"head{self.head_num}_D{self.in_dim}_R{self.rank}_P{self.trainset_size}_N{self.seq_len}"
        return f"{self.model}_{sizes}_seed{self.seed}"

    def mark(self) -> str:
        """Return what the names of files have behind `name()`, for test sets or tracked values."""
        if self.testset_size:
            return f"_icl{self.icl}"
        return "_value" if self.track_value else ""


def add_published_flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add all flags of the published script to a parser, with its defaults, and `--scheme`.

    The script has had several initialization schemes; `--scheme` names one, and is by default today's.

    **Arguments:**

    - `parser`: the parser, to which the flags are added in groups.

    **Returns:** the actions added, one for each flag.

    **Example:**

    >>> import argparse
    >>> from stepwell.experiments.published import Published, add_published_flags
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> Published.of(parser.parse_args(["--model", "attnS", "--KQ_dim", "4"])).rank
    4
    """
    groups = {title: parser.add_argument_group(title) for title in ("training", "data", "model", "output")}
    added = [groups["output"].add_argument("--show", action="store_true", help="show the plot in a window")]
    for field in dataclasses.fields(Published):
        names = ("--rank", "--KQ_dim") if field.name == "rank" else (f"--{field.name}",)
        added.append(groups[field.metadata["group"]].add_argument(*names, **field.metadata["options"]))
    return added
