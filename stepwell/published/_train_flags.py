"""All flags that decide what is trained, and the run that they describe: for the terminal, for files and for sweeps.

Nothing here imports JAX.
"""

import argparse
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from stepwell._errors import InvalidInput
from stepwell._parser import Parser
from stepwell._task_file import add_file_flag, flag_of, words_of
from stepwell._task_flags import add_task_flags

from ._beyond import Beyond, published_spectrum, resolve
from ._flags import Engine, Published, add_published_flags, check, engine_for, flows


class Run(NamedTuple):
    """What is trained: the published flags, what is beyond them, the engine, and the flow time if one was given."""

    flags: Published
    beyond: Beyond
    engine: Engine
    until: float | str | None = None
    """A time, or "converged"."""


def add_train_flags(parser: Parser) -> list[argparse.Action]:
    """Declare all flags that decide what is trained, the published ones first.

    **Arguments:**

    - `parser`: the parser of the command line.

    **Returns:** the published flags, for `keep_abbreviations`.

    **Example:**

    >>> from stepwell._parser import Parser
    >>> from stepwell.published import add_train_flags
    >>> parser = Parser(prog="stepwell train")
    >>> actions = add_train_flags(parser)
    >>> parser.parse_args(["--spectrum", "power:1.5", "--dim", "4"]).spectrum
    'power:1.5'
    """
    published = add_published_flags(parser)
    absent: Any = {"default": argparse.SUPPRESS}
    task = parser.add_argument_group(
        "task, beyond the published script", "Described as for `stepwell predict`. The eigenvectors are random."
    )
    add_file_flag(parser, task)
    add_task_flags(task, one="one regression", several="softmax attention on several regressions")
    run = parser.add_argument_group("training, beyond the published script")
    run.add_argument(
        "--heads", type=int, metavar="H", **absent, help="the same as --head_num; with --dims one for each"
    )
    run.add_argument(
        "--optimiser",
        metavar="NAME",
        **absent,
        help="adam, sgd, momentum, muon or another of optax, with parameters if need be: adam:b1=0.9,b2=0.99 "
        "(default: sgd)",
    )
    run.add_argument(
        "--schedule",
        metavar="NAME",
        **absent,
        help="how the rate changes from --lr over all steps: cosine, linear, exponential:decay_rate=0.1, "
        "warmup_cosine:warmup_steps=100 or another of optax (default: constant)",
    )
    run.add_argument(
        "--seeds",
        nargs="+",
        metavar="SEEDS",
        **absent,
        help="train many seeds as one program: how many from --seed on (20), a range (20:40), or each (3 5 8)",
    )
    run.add_argument(
        "--engine",
        choices=("auto", *get_args(Engine)),
        default="auto",
        help="how the loss is computed: from moments of the data (exact, linear attention only), from the sequences, "
        "over infinitely many sequences; flow and population-flow are gradient flow, on the moments and over "
        "infinitely many sequences; auto is moments where it can be",
    )
    run.add_argument(
        "--until",
        metavar="TIME",
        **absent,
        help="instead of --epoch: the flow time t/tau, as on the plot and in `stepwell predict`, or converged "
        "with an engine that flows: as long as the flow over infinitely many sequences takes",
    )
    return published


def run_of(arguments: argparse.Namespace) -> Run:
    """The run that parsed flags describe, checked.

    **Arguments:**

    - `arguments`: what a parser with `add_train_flags` returned.

    **Returns:** the `Run`. `InvalidInput` is raised where flags contradict each other, or describe what cannot be
    trained.

    **Example:**

    >>> from stepwell._parser import Parser
    >>> from stepwell.published import add_train_flags, run_of
    >>> parser = Parser(prog="stepwell train")
    >>> actions = add_train_flags(parser)
    >>> run_of(parser.parse_args(["--engine", "population-flow", "--until", "40"])).until
    40.0
    """
    flags, beyond = resolve(arguments)
    engine = engine_for(flags, arguments.engine)
    if flows(engine) and not beyond.plain:
        raise InvalidInput(f"--engine {engine} is gradient flow; leave out --optimiser and --schedule")
    until = _until(arguments, engine)
    check(flags, engine, 1 if beyond.seeds is None else len(beyond.seeds))
    return Run(flags, beyond, engine, until)


def run_in(fields: Mapping[str, Any], source: str = "the configuration") -> Run:
    """The run that plain fields describe: the flags of `stepwell train` by name, with their values.

    **Arguments:**

    - `fields`: numbers, texts, lists of them, or true and false, by the names of flags, with - or _.
    - `source`: what messages call the fields.

    **Returns:** the `Run`, as for the same words in the terminal.

    **Example:**

    >>> from stepwell.published import run_in
    >>> run_in({"model": "attnS", "heads": 3, "engine": "population"}).flags.head_num
    3
    """
    words: list[str] = []
    for key, value in fields.items():
        words += words_of(source, key, value, flag_of(_parser(), key, source))
    return run_of(_parser().parse_args(words))


def is_whole(field: str) -> bool:
    """Whether a field is a whole number.

    **Arguments:**

    - `field`: the name of a flag of `stepwell train`, with - or _.

    **Returns:** whether it is.

    **Example:**

    >>> from stepwell.published import is_whole
    >>> is_whole("heads"), is_whole("init")
    (True, False)
    """
    return flag_of(_parser(), field, "the configuration").type is int


@functools.cache
def _parser() -> Parser:
    parser = Parser(prog="stepwell train", add_help=False)
    add_train_flags(parser)
    return parser


def _until(arguments: argparse.Namespace, engine: str) -> float | str | None:
    """The time of `--until`, or the word converged; None if it was not given."""
    given = getattr(arguments, "until", None)
    if given is None:
        return None
    if given == "converged":
        if not flows(engine):
            raise InvalidInput("--until converged is for --engine flow or population-flow; give a time, or --epoch")
        return given
    from stepwell import _check  # which needs NumPy, as help does not

    try:
        return _check.number("--until", float(given), least=0.0, above=True)
    except ValueError:
        raise InvalidInput(f"--until is {given!r}; it must be a time above 0, or converged") from None


def tables_of(run: Run) -> dict[str, dict[str, Any]]:
    """A run as the tables of a TOML file, in words that `stepwell predict` has too where it has them.

    **Arguments:**

    - `run`: the run, as `run_of` or `run_in` returns it.

    **Returns:** the tables `task`, `model` and `training`.

    **Example:**

    >>> from stepwell.published import run_in, tables_of
    >>> tables_of(run_in({"spectrum": "white", "dim": 2, "context": 20}))["task"]["eigenvalues"]
    [0.5, 0.5]
    """
    flags, beyond, engine, until = run
    task, own = beyond.task, beyond.identity()
    lam = task.eigenvalues or (
        [1 / flags.in_dim] * flags.in_dim if flags.white_cov else published_spectrum(flags.in_dim)
    )
    one = {"eigenvalues": list(lam), "context": list(task.context or [flags.context])}
    one |= {"task-eigenvalues": own["task_eigenvalues"]} if "task_eigenvalues" in own else {}
    several = {"dims": own.get("dims"), "strengths": own.get("strengths"), "context": [flags.context]}
    described = {**(several if beyond.several else one), "noise": task.noise}
    single = {name: getattr(flags, name) for name in ("vary_len", "out_dim", "cubic_feat")}
    single |= {} if isinstance(flags.icl, int) else {"icl": flags.icl}
    model = {"heads": flags.head_num, "init": flags.init}
    kind = {name: getattr(flags, name) for name in ("model", "rank", "softmax", "start")}
    seed = {"seed": flags.seed} if beyond.seeds is None else {"seeds": [str(seed) for seed in beyond.seeds]}
    length = {"epoch": flags.epoch} if until is None else {"until": str(until)}
    training = {"lr": flags.lr, **length, "optimiser": beyond.optimiser, "schedule": beyond.schedule, "engine": engine}
    training["trainset_size"] = flags.trainset_size
    tested = {"testset_size": flags.testset_size, "track_value": flags.track_value}
    return {
        "task": described if beyond.several else {**described, **single},
        "model": {**model, **seed} if beyond.several else {**kind, **model, **seed},
        "training": training if beyond.several else {**training, **tested},
    }
