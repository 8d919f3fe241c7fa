"""The published script's flags, their defaults and abbreviations, and what is allowed in them.

Nothing here imports JAX, so that a mistake in a flag is reported at once.
"""

import argparse
import dataclasses
from typing import Any, Literal

from stepwell import _kinds
from stepwell._errors import InvalidInput
from stepwell._kinds import KINDS, Kind

Engine = Literal["moments", "sampled", "population", "flow", "population-flow"]
"""How the loss is computed: from the moments of the data, from the sequences, over infinitely many sequences; the last
two are gradient flow instead of descent, on the moments of the data and over infinitely many sequences."""

_MODELS = _kinds.names(trained=True)
_RANKED = _kinds.listed(name for name in _MODELS if KINDS[name].has_rank)
_OF_FEATURES = _kinds.listed(_kinds.names(layout="features", trained=True))

_WITH_RULES = _kinds.listed(name for name in _MODELS if len(KINDS[name].starts) > 1)
SEVERAL = "spectral"
"""The model of several regressions: softmax attention by its eigenvalues."""
_TODAY, _PAPER = "script", "paper"
_LOW_RANK_DIM = 8
"""The dimension in the published figures of low rank, which were made at another time than Fig 3."""

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
        (
            ("--cubic_feat",),
            {"action": "store_true", "help": f"cubic features instead of tokens, for the {_OF_FEATURES}"},
        ),
    ],
    "model": [
        (
            ("--model",),
            {
                "choices": _MODELS,
                "default": _MODELS[0],
                "help": _kinds.listed(KINDS[name].description for name in _MODELS),
            },
        ),
        (("--softmax",), {"action": "store_true", "help": "softmax attention; else linear"}),
        (("--rank", "--KQ_dim"), {"type": int, "default": 1, "help": f"rank of key and query, for {_RANKED}"}),
        (("--head_num",), {"type": int, "default": 1, "help": "heads"}),
        (("--init",), {"type": float, "default": 0.01, "help": "scale of the initial weights"}),
        (
            ("--start",),
            {
                "choices": [_TODAY, _PAPER, *dict.fromkeys(rule for kind in KINDS.values() for rule in kind.starts)],
                "default": _TODAY,
                "help": f"rule of the initial weights of {_WITH_RULES} (the published script has no such flag): "
                f"{_TODAY}, what that does today; {_PAPER}, what its figures were made with, per-head where --in_dim "
                f"is {_LOW_RANK_DIM} (Figs 4 and 12) and plain elsewhere (Fig 3); plain, standard deviation init; "
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


@dataclasses.dataclass(frozen=True)
class Published:
    """The published flags that decide what is trained, as given, and `start`, which chooses among its rules."""

    epoch: int
    lr: float
    seed: int
    icl: int | float  # the file name has the default as 1, a value given as 1.0
    trainset_size: int
    testset_size: int
    white_cov: bool
    vary_len: bool
    seq_len: int
    in_dim: int
    out_dim: int
    cubic_feat: bool
    model: str
    softmax: bool
    rank: int
    head_num: int
    init: float
    start: str
    track_value: bool

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Published":
        return cls(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(cls)})

    @property
    def kind(self) -> Kind:
        """The declaration of the model."""
        return KINDS[self.model]

    @property
    def start_rule(self) -> str:
        """The rule of the initial weights that `start` means."""
        if self.start == _TODAY:
            return self.kind.starts[-1]
        if self.start == _PAPER:
            return "per-head" if "per-head" in self.kind.starts and self.in_dim == _LOW_RANK_DIM else "plain"
        return self.start

    @property
    def context(self) -> int:
        """Context pairs in a whole sequence."""
        return self.seq_len - 1

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

    The script has had several rules for initial weights; `--start` names one, and is by default today's.

    **Arguments:**

    - `parser`: the parser, to which the flags are added in groups.

    **Returns:** the actions added, one for each flag.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags
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

    **Example:** `--e` could be `--epoch` or `--engine`; it stays `--epoch`.

    >>> import argparse
    >>> from stepwell.published import add_published_flags, keep_abbreviations
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> _ = parser.add_argument("--engine")
    >>> keep_abbreviations(parser, actions)
    >>> parser.parse_args(["--e", "100"]).epoch
    100
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


def engine_for(flags: Published, asked: str) -> Engine:
    """The engine asked for, if it can train this model on these data.

    **Arguments:**

    - `flags`: the published flags.
    - `asked`: `moments`, `sampled`, `population`, `flow`, `population-flow` or `auto`, which is `moments` where
      attention is linear, `sampled` where it is softmax, and `population` for several regressions.

    **Returns:** the name of the engine. `InvalidInput` is raised if it is for other models or data.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, engine_for
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> [engine_for(Published.of(parser.parse_args(words)), "auto") for words in ([], ["--softmax"])]
    ['moments', 'sampled']
    """
    if flags.model == SEVERAL:
        if asked == "moments":
            raise InvalidInput("--engine moments is for linear attention; with --dims use population, flow or sampled")
        return {"auto": "population", "population-flow": "flow"}.get(asked, asked)  # pyright: ignore
    if asked == "auto":
        return "sampled" if flags.softmax else "moments"
    if flags.softmax and asked != "sampled":
        raise InvalidInput(f"--engine {asked} is for linear attention; with --softmax use --engine sampled")
    if infinite(asked) and flags.icl != 1:
        raise InvalidInput(f"--engine {asked} needs --icl 1, not {flags.icl:g}; use --engine moments")
    return asked  # pyright: ignore


def flows(engine: str) -> bool:
    """Whether an engine follows the gradient flow.

    **Arguments:**

    - `engine`: its name.

    **Returns:** whether it does.

    **Example:**

    >>> from stepwell.published import flows
    >>> flows("population-flow"), flows("moments")
    (True, False)
    """
    return engine in ("flow", "population-flow")


def infinite(engine: str) -> bool:
    """Whether an engine computes the loss over infinitely many sequences.

    **Arguments:**

    - `engine`: its name.

    **Returns:** whether it does.

    **Example:**

    >>> from stepwell.published import infinite
    >>> infinite("population-flow"), infinite("flow")
    (True, False)
    """
    return engine in ("population", "population-flow")


def check(flags: Published, engine: Engine, runs: int = 1) -> None:
    """Raise `InvalidInput`, with one line, if the flags describe what the engine cannot train or what would not fit.

    **Arguments:**

    - `flags`: the published flags.
    - `engine`: how the loss will be computed, as `engine_for` returns it.
    - `runs`: how many runs there are, one for each seed.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, check
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> check(Published.of(parser.parse_args(["--lr", "-1"])), "moments")
    Traceback (most recent call last):
        ...
    stepwell._errors.InvalidInput: --lr is -1.0; it must be a number, above 0
    """
    from stepwell import _check

    least = {"epoch": 1, "trainset_size": 1, "testset_size": 0, "seq_len": 2, "in_dim": 1, "out_dim": 1, "rank": 1}
    for name, value in {**least, "head_num": 1, "seed": 0}.items():
        _check.whole(f"--{name}", getattr(flags, name), least=value)
    if flags.seed >= 2**32:
        raise InvalidInput(f"--seed is {flags.seed}; it must be below 2**32")
    _check.number("--lr", flags.lr, least=0.0, above=True)
    _check.number("--init", flags.init, least=0.0)
    _check.number("--icl", flags.icl, least=0.0, most=1.0)
    if flags.model == SEVERAL:
        _check_several(flags, engine, runs)
        return
    reads_features = flags.kind.layout == "features"
    if reads_features and not flags.cubic_feat:
        raise InvalidInput(f"--model {flags.model} reads cubic features; add --cubic_feat")
    if flags.start_rule not in flags.kind.starts:
        raise InvalidInput(
            f"--start {flags.start} is for --model {_WITH_RULES}; {flags.model} has one rule, plain: leave out --start"
        )
    if flags.softmax and not flags.kind.is_attention:
        raise InvalidInput(f"--model {flags.model} has no attention; leave out --softmax")
    if flags.cubic_feat and not reads_features:
        raise InvalidInput(f"--model {flags.model} reads tokens; leave out --cubic_feat, or use --model {_OF_FEATURES}")
    sets = {"trainset_size": flags.icl == 1 and not infinite(engine), "testset_size": flags.testset_size > 0}
    for name, whitened in sets.items():
        size = getattr(flags, name)
        if whitened and size <= flags.in_dim:
            raise InvalidInput(
                f"--{name} is {size}; to whiten task vectors of dimension {flags.in_dim} it must be at least "
                f"{flags.in_dim + 1}"
            )
    if flows(engine) and flags.init == 0:
        raise InvalidInput("--init 0 is a fixed point of the flow; give a small number above 0")
    _check_memory(flags, engine, runs)


def _check_several(flags: Published, engine: Engine, runs: int) -> None:
    from stepwell import _check
    from stepwell._memory import require_memory

    _check.number("--init", flags.init, least=1e-50, most=1e50)
    if engine == "sampled" and flags.trainset_size < 32:
        raise InvalidInput(f"--trainset_size is {flags.trainset_size}; with --dims it must be at least 32")
    weights = 4 * flags.head_num * flags.out_dim
    each = 101 * weights + 4 * flags.epoch * (1 + (weights if flows(engine) else 0))
    if engine == "sampled":
        each += 4 * flags.trainset_size * flags.seq_len * (flags.out_dim + flags.head_num)
    require_memory(
        8 * runs * each,
        what=f"{runs} runs of {flags.epoch} epochs, {flags.head_num} heads and {flags.out_dim} regressions",
        instead="take a smaller --epoch, --heads or --trainset_size, or fewer --seeds",
    )


def warnings(flags: Published) -> list[str]:
    """Messages about flags that are allowed but probably not meant.

    **Arguments:**

    - `flags`: the published flags.

    **Returns:** the messages, of one line each; an empty list if there is nothing to warn of.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, warnings
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> warnings(Published.of(parser.parse_args(["--init", "0"])))
    ['--init 0 is a fixed point: the weights will not move']
    """
    messages = []
    if flags.model != SEVERAL and flags.kind.has_rank and flags.rank > flags.in_dim:
        messages.append(f"--rank {flags.rank} is above --in_dim {flags.in_dim}: rank {flags.in_dim} can do the same")
    if flags.init == 0:
        messages.append("--init 0 is a fixed point: the weights will not move")
    return messages


def _check_memory(flags: Published, engine: Engine, runs: int) -> None:
    from stepwell._memory import require_memory

    dim, outputs, heads = flags.in_dim, flags.out_dim, flags.head_num
    width, tests = dim + outputs, 2 if flags.testset_size else 0
    pairs = flags.kind.pairs(dim, flags.rank)
    reads_features = flags.kind.layout == "features"
    weights = heads * (outputs * width + 2 * pairs * width)
    require_memory(
        8 * runs * (101 * weights + 8 * dim**2),
        what=f"a model of {heads} heads in dimension {dim}",
        instead="take a smaller --head_num, --rank or --in_dim",
    )
    curves = 1 + tests + (heads if flags.track_value else 0) + (weights if flows(engine) else 0)
    require_memory(
        4 * 8 * runs * flags.epoch * curves,
        what=f"recording {flags.epoch} epochs of {curves} numbers",
        instead="take a smaller --epoch" + (", or another --engine" if flows(engine) else ""),
    )
    features = dim * dim * outputs if reads_features else dim * width * (width + 1) // 2
    if engine in ("moments", "flow") or (infinite(engine) and tests):
        require_memory(
            8 * runs * (3 + tests) * features**2,
            what=f"the moment matrix of {features} features (--in_dim {dim})",
            instead="take a smaller --in_dim, or --engine "
            + ("population or sampled" if flags.icl == 1 and not tests else "sampled"),
        )
    if flows(engine):
        require_memory(
            4 * 8 * runs * weights**2,
            what=f"the Hessian of {weights} weights",
            instead="take a smaller --head_num or --in_dim, or an --engine that descends",
        )
    if engine == "sampled":
        lengths = flags.context if flags.vary_len else 1
        inner = 2 * features if reads_features else flags.seq_len * (2 * heads + width)
        each = 2 * flags.seq_len * (dim + 2 * outputs) + lengths * inner
        total = flags.trainset_size + tests * flags.testset_size
        require_memory(
            8 * runs * total * each,
            what=f"training on {total} sequences of {flags.seq_len} tokens",
            instead="take a smaller --trainset_size" + ("" if flags.softmax else ", or --engine moments"),
        )
