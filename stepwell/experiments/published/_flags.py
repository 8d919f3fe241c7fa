"""The published script's flags, their defaults and abbreviations, and what is allowed in them."""

import argparse
import dataclasses
from typing import Any

from stepwell._util.errors import InvalidInput

from .. import SEED, find_kind

MODELS = {"attnM": "merged", "attnS": "separate", "mlp": "mlp"}
"""The script's models, and what they are called here."""
SCHEMES = ("plain", "per-head", "stacked")
"""Initialization schemes of separate attention, the one that the script has today last."""
TODAY, PAPER = "script", "paper"
_LOW_RANK_DIM = 8
"""The dimension in the published figures of low rank, which were made at another time than Fig 3."""
_MOST_LENGTHS = 4096

_GROUPS: dict[str, list[tuple[tuple[str, ...], dict[str, Any]]]] = {
    "training": [
        (
            ("--epoch",),
            {"type": int, "default": 6001, "help": "number of gradient steps; the loss is recorded before each"},
        ),
        (("--lr",), {"type": float, "default": 0.001, "help": "learning rate"}),
        (("--seed",), {"type": int, "default": 10, "help": "seed of data, task and initial weights"}),
    ],
    "data": [
        (("--icl",), {"type": float, "default": 1, "help": "fraction of sequences with a task vector of their own"}),
        (("--trainset_size",), {"type": int, "default": 5000, "help": "training sequences"}),
        (("--testset_size",), {"type": int, "default": 0, "help": "sequences in each of the two test sets"}),
        (("--white_cov",), {"action": "store_true", "help": "white inputs; else eigenvalues in proportion 1..in_dim"}),
        (
            ("--vary_len",),
            {"action": "store_true", "help": "average over context lengths; attention is divided by tokens"},
        ),
        (("--seq_len",), {"type": int, "default": 32, "help": "tokens in a sequence, the query included"}),
        (("--in_dim",), {"type": int, "default": 4, "help": "dimension of an input"}),
        (("--out_dim",), {"type": int, "default": 1, "help": "labels a token"}),
        (("--cubic_feat",), {"action": "store_true", "help": "cubic features instead of tokens, for the mlp"}),
    ],
    "model": [
        (
            ("--model",),
            {
                "choices": list(MODELS),
                "default": "attnM",
                "help": "attention with merged (attnM) or separate (attnS) key and query, or the MLP",
            },
        ),
        (("--softmax",), {"action": "store_true", "help": "softmax attention; else linear"}),
        (("--rank", "--KQ_dim"), {"type": int, "default": 1, "help": "rank of key and query, for attnS"}),
        (("--head_num",), {"type": int, "default": 1, "help": "heads"}),
        (("--init",), {"type": float, "default": 0.01, "help": "initialization scale"}),
        (
            ("--start",),
            {
                "choices": [TODAY, PAPER, *SCHEMES],
                "default": TODAY,
                "help": "initialization scheme of attnS (the published script has no such flag): "
                f"{TODAY}, what that does today; {PAPER}, what its figures were made with, per-head where --in_dim is "
                f"{_LOW_RANK_DIM} (Figs 4 and 12) and plain elsewhere (Fig 3); plain, standard deviation init; "
                "per-head, keys and queries divided by the root of a head's entries; stacked, all by that of all "
                "heads' entries",
            },
        ),
    ],
    "output": [
        (("--show",), {"action": "store_true", "help": "show the plot in a window"}),
        (("--track_value",), {"action": "store_true", "help": "record the value weight of each head at each step"}),
    ],
}

_FIELDS: dict[str, tuple[Any, str, str]] = {
    "epoch": ("training", "descent", "steps"),
    "lr": ("training", "descent", "rate"),
    "icl": ("task", "mixture", "in_context"),
    "trainset_size": ("objective", "moments", "sequences"),
    "testset_size": ("record", "record", "test_sequences"),
    "in_dim": ("task", "regression", "dim"),
    "out_dim": ("task", "regression", "outputs"),
    "rank": ("model", "separate", "rank"),
    "head_num": ("model", "separate", "heads"),
    "init": ("model", "separate", "scale"),
}
"""The field that a flag sets, and whose bounds it has."""


@dataclasses.dataclass(frozen=True)
class Published:
    """The published flags that decide what is trained, as given, and `start`, which chooses among its schemes."""

    epoch: int = 6001
    lr: float = 0.001
    seed: int = 10
    icl: int | float = 1  # the file name has the default as 1, a value given as 1.0
    trainset_size: int = 5000
    testset_size: int = 0
    white_cov: bool = False
    vary_len: bool = False
    seq_len: int = 32
    in_dim: int = 4
    out_dim: int = 1
    cubic_feat: bool = False
    model: str = "attnM"
    softmax: bool = False
    rank: int = 1
    head_num: int = 1
    init: float = 0.01
    start: str = TODAY
    track_value: bool = False

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Published":
        return cls(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(cls)})

    @property
    def scheme(self) -> str:
        """The initialization scheme that `start` means."""
        if self.start == TODAY:
            return SCHEMES[-1]
        if self.start == PAPER:
            return "per-head" if self.in_dim == _LOW_RANK_DIM else "plain"
        return self.start

    def name(self) -> str:
        """The published name of a loss file, without its ending."""
        sizes = f"head{self.head_num}_D{self.in_dim}_R{self.rank}_P{self.trainset_size}_N{self.seq_len}"
        return f"{self.model}_{sizes}_seed{self.seed}"

    def mark(self) -> str:
        """What the names of files have behind `name()`, for test sets or tracked values."""
        if self.testset_size:
            return f"_icl{self.icl}"
        return "_value" if self.track_value else ""


def add_published_flags(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Add all flags of the published script to a parser, with its defaults, and `--start`.

    The script has had several initialization schemes; `--start` names one, and is by default today's.

    **Arguments:**

    - `parser`: the parser, to which the flags are added in groups.

    **Returns:** the actions added, one for each flag.

    **Example:**

    >>> import argparse
    >>> from stepwell.experiments.published import Published, add_published_flags
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> flags = Published.of(parser.parse_args(["--model", "attnS", "--head_num", "4"]))
    >>> flags.name()
    'attnS_head4_D4_R1_P5000_N32_seed10'
    """
    added = []
    for title, flags in _GROUPS.items():
        group = parser.add_argument_group(title)
        added += [group.add_argument(*names, **options) for names, options in flags]
    return added


def keep_abbreviations(parser: argparse.ArgumentParser, published: list[argparse.Action]) -> None:
    """Let an abbreviation that only our own flags make ambiguous mean what it means to the published script.

    argparse takes an exact name before a prefix, so each of these becomes a hidden name of the published flag.

    **Arguments:**

    - `parser`: the parser, which has all the flags already.
    - `published`: the actions that `add_published_flags` returned.

    **Example:** `--o` could be `--out_dim` or `--overwrite`; it stays `--out_dim`.

    >>> import argparse
    >>> from stepwell.experiments.published import add_published_flags, keep_abbreviations
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> _ = parser.add_argument("--overwrite")
    >>> keep_abbreviations(parser, actions)
    >>> parser.parse_args(["--o", "2"]).out_dim
    2
    """
    others = (action for action in parser._actions if action not in published and action.dest != "help")
    own = [flag for action in others for flag in action.option_strings]
    names = {name: action for action in published for name in action.option_strings}
    for prefix in sorted({name[:end] for name in names for end in range(3, len(name))} - {*names, *own}):
        meant = {id(action): action for name, action in names.items() if name.startswith(prefix)}
        if len(meant) == 1 and any(name.startswith(prefix) for name in own):
            action = next(iter(meant.values()))
            kind: dict[str, Any] = {"action": "store_true"} if action.nargs == 0 else {"type": action.type or str}
            parser.add_argument(prefix, dest=action.dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **kind)


def check(flags: Published) -> None:
    """Raise `InvalidInput`, with one line, if the flags describe what cannot be trained.

    **Arguments:**

    - `flags`: the published flags.

    **Example:**

    >>> from stepwell.experiments.published import Published, check
    >>> check(Published(head_num=0))
    Traceback (most recent call last):
        ...
    stepwell._util.errors.InvalidInput: --head_num is 0; it must be an integer from 1 to 1000000
    """
    for name, (section, kind, field) in _FIELDS.items():
        find_kind(section, kind).fields[field].convert(getattr(flags, name), name=f"--{name}")
    SEED.convert(flags.seed, name="--seed")
    if not 2 <= flags.seq_len <= 10**9:
        raise InvalidInput(f"--seq_len is {flags.seq_len}; it must be an integer from 2 to {10**9}")
    if flags.vary_len and flags.seq_len > _MOST_LENGTHS + 1:
        raise InvalidInput(f"--seq_len is {flags.seq_len}; with --vary_len it must be at most {_MOST_LENGTHS + 1}")
    if flags.model not in MODELS:
        raise InvalidInput(f"--model is {flags.model}; it must be one of {', '.join(MODELS)}")
    is_mlp = flags.model == "mlp"
    if is_mlp and not flags.cubic_feat:
        raise InvalidInput("--model mlp reads cubic features; add --cubic_feat")
    if flags.cubic_feat and not is_mlp:
        raise InvalidInput(f"--model {flags.model} reads tokens; leave out --cubic_feat, or use --model mlp")
    if flags.softmax and is_mlp:
        raise InvalidInput("--model mlp has no attention; leave out --softmax")
    if flags.model != "attnS" and flags.start not in (TODAY, PAPER, "plain"):
        raise InvalidInput(
            f"--start {flags.start} is for --model attnS; {flags.model} has one scheme, plain: leave out --start"
        )
    sets = {"trainset_size": flags.icl == 1, "testset_size": flags.testset_size > 0}
    for name, whitened in sets.items():
        size = getattr(flags, name)
        if whitened and size <= flags.in_dim:
            raise InvalidInput(
                f"--{name} is {size}; to whiten task vectors of dimension {flags.in_dim} it must be at least "
                f"{flags.in_dim + 1}"
            )


def warnings(flags: Published) -> list[str]:
    """Return messages about flags that are allowed but without effect, or probably not meant.

    **Arguments:**

    - `flags`: the published flags.

    **Returns:** the messages, of one line each; an empty list if there is nothing to warn of.

    **Example:**

    >>> from stepwell.experiments.published import Published, warnings
    >>> warnings(Published(init=0.0))
    ['--init 0 is a fixed point: the weights will not move']
    """
    messages = []
    if flags.model != "attnS" and flags.rank != 1:
        messages.append(
            f"--rank {flags.rank} has no effect on --model {flags.model}, whose key and query have full rank"
        )
    elif flags.rank > flags.in_dim:
        messages.append(f"--rank {flags.rank} is above --in_dim {flags.in_dim}: rank {flags.in_dim} can do the same")
    if flags.init == 0:
        messages.append("--init 0 is a fixed point: the weights will not move")
    return messages
