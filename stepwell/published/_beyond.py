"""What `stepwell train` can do beyond the published script: other tasks, optimisers, and many seeds as one program."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from stepwell._errors import InvalidInput
from stepwell._task_flags import Description

from ._flags import SEVERAL, Published

PLAIN = ("sgd", "constant")
"""Optimiser and schedule of the published script."""
_CONTEXT = 100
"""Context pairs for several regressions, as in the softmax paper."""


@dataclasses.dataclass(frozen=True)
class Beyond:
    """What the published flags cannot say. The default is the published script itself."""

    task: Description = Description()
    optimiser: str = PLAIN[0]
    schedule: str = PLAIN[1]
    seeds: tuple[int, ...] | None = None

    @property
    def plain(self) -> bool:
        """Whether it is gradient descent at a constant rate."""
        return (self.optimiser, self.schedule) == PLAIN

    @property
    def several(self) -> bool:
        """Whether there are several regressions."""
        return self.task.dims is not None

    def name(self, flags: Published) -> str:
        """The name of a loss file, without its ending, as the published script would build it."""
        name = flags.name()
        if self.task.dims is not None:
            sizes = "-".join(map(str, self.task.dims))[:40]
            name = f"{flags.model}_head{flags.head_num}_dims{sizes}_N{flags.seq_len}_seed{flags.seed}"
        if self.seeds is not None:
            name = name.removesuffix(f"_seed{flags.seed}") + f"_seeds{self.seeds[0]}-{self.seeds[-1]}"
        return name

    def identity(self) -> dict[str, Any]:
        """What is not as in the published script, by flag, as JSON has it."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "task"}
        values = {**dataclasses.asdict(self.task), **own}
        default = {**dataclasses.asdict(Description()), **dataclasses.asdict(NOTHING)}
        changed = {name: value for name, value in values.items() if value != default[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}

    @classmethod
    def of(cls, identity: dict[str, Any]) -> "Beyond":
        """What has this `identity`."""
        values: dict[str, Any] = {
            n: tuple(value) if isinstance(value, list) else value for n, value in identity.items()
        }
        described = {field.name for field in dataclasses.fields(Description)} & set(values)
        own = {name: value for name, value in values.items() if name not in described}
        return cls(task=Description(**{name: values[name] for name in described}), **own)


NOTHING = Beyond()
"""The published script itself."""


def resolve(arguments: argparse.Namespace) -> tuple[Published, Beyond]:
    """The published flags and what is beyond them, as the words of a command say together.

    What the published flags can say is said with them, whatever words were used: `--context 20` is `--seq_len 21`, and
    the eigenvalues .4 .3 .2 .1 are the published ones.

    **Arguments:**

    - `arguments`: the flags of `stepwell train`, parsed.

    **Returns:** the `Published` flags and the `Beyond`. `InvalidInput` is raised where words contradict each other.

    **Example:**

    >>> from stepwell.cli import _train
    >>> from stepwell._parser import Parser
    >>> from stepwell.published import resolve
    >>> parser = Parser(prog="stepwell train")
    >>> _train.configure(parser)
    >>> flags, beyond = resolve(parser.parse_args(["--spectrum", "power:2", "--dim", "2", "--context", "20"]))
    >>> flags.in_dim, flags.seq_len, [round(value, 3) for value in beyond.task.eigenvalues]
    (2, 21, [0.8, 0.2])
    """
    from stepwell._description import described, seeds_of

    flags = Published.of(arguments)
    if hasattr(arguments, "heads"):
        flags = dataclasses.replace(flags, head_num=arguments.heads)
    named = getattr(arguments, "spectrum", None) is not None
    if hasattr(arguments, "dim"):
        flags = dataclasses.replace(flags, in_dim=arguments.dim)
    elif named:
        arguments = argparse.Namespace(**vars(arguments), dim=flags.in_dim)
    if not named and not hasattr(arguments, "eigenvalues") and hasattr(arguments, "dim"):
        arguments = argparse.Namespace(**{k: v for k, v in vars(arguments).items() if k != "dim"})
    task = described(arguments)
    flags, task = _several(flags, task, arguments) if task.dims is not None else _one(flags, task)
    seeds = getattr(arguments, "seeds", None)
    if seeds is not None:
        listed = seeds_of(seeds, flags.seed)
        flags = dataclasses.replace(flags, seed=listed[0])
        seeds = listed if len(listed) > 1 else None
    optimiser, schedule = (getattr(arguments, name, PLAIN[i]) for i, name in enumerate(("optimiser", "schedule")))
    beyond = Beyond(task, "".join(optimiser.split()), "".join(schedule.split()), seeds)
    _refuse_contradictions(flags, beyond)
    return flags, beyond


def _one(flags: Published, task: Description) -> tuple[Published, Description]:
    if task.context is not None:
        if flags.vary_len and len(task.context) > 1:
            raise InvalidInput("--vary_len and a --context of several lengths contradict each other; give one of them")
        flags = dataclasses.replace(flags, seq_len=max(task.context) + 1)
    mixture = None if task.context is None or len(task.context) == 1 else tuple(sorted(task.context))
    lam = task.eigenvalues
    if lam is not None:
        if flags.white_cov:
            raise InvalidInput("--white_cov and --eigenvalues contradict each other; give one of them")
        flags = dataclasses.replace(flags, in_dim=len(lam), white_cov=is_white(lam))
        if flags.white_cov or lam == published_spectrum(len(lam)):
            lam = None
    if task.task_eigenvalues is not None and len(task.task_eigenvalues) != flags.in_dim:
        raise InvalidInput(
            f"there are {len(task.task_eigenvalues)} --task-eigenvalues in dimension {flags.in_dim}; give one for each"
        )
    return flags, dataclasses.replace(task, eigenvalues=lam, context=mixture)


def _several(flags: Published, task: Description, arguments: argparse.Namespace) -> tuple[Published, Description]:
    assert task.dims is not None
    default = {field: False for field in ("white_cov", "vary_len", "cubic_feat", "track_value")}
    default |= {"testset_size": 0, "icl": 1, "rank": 1, "start": "script"}
    for name, value in default.items():
        if getattr(flags, name) != value:
            raise InvalidInput(f"--{name} is for one regression; with --dims leave it out")
    tokens = _CONTEXT + 1 if flags.seq_len == 32 else flags.seq_len
    heads = flags.head_num if flags.head_num > 1 or hasattr(arguments, "heads") else len(task.dims)
    flags = dataclasses.replace(
        flags,
        model=SEVERAL,
        softmax=True,
        in_dim=sum(task.dims),
        out_dim=len(task.dims),
        head_num=heads,
        seq_len=tokens if task.context is None else task.context[0] + 1,
    )
    return flags, dataclasses.replace(task, context=None)


def _refuse_contradictions(flags: Published, beyond: Beyond) -> None:
    task = beyond.task
    own = task.task_eigenvalues is not None or task.noise > 0 or task.context is not None
    if own and (flags.icl != 1 or flags.testset_size):
        raise InvalidInput(
            "--icl below 1 and --testset_size are for tasks without --noise, --task-eigenvalues and mixtures of "
            "--context; leave out one or the other"
        )
    for name in ("testset_size", "track_value"):
        if beyond.seeds is not None and getattr(flags, name):
            raise InvalidInput(f"--{name} is for one run; with --seeds leave it out, or train one --seed at a time")


def is_white(eigenvalues: Sequence[float]) -> bool:
    """Whether these are the eigenvalues of the script's white inputs, whose covariance is not rotated.

    **Arguments:**

    - `eigenvalues`: of the covariance of the inputs.

    **Returns:** whether there are several, all the same, of sum 1.

    **Example:**

    >>> from stepwell.published import is_white
    >>> is_white([0.5, 0.5]), is_white([1.0, 1.0])
    (True, False)
    """
    return len(eigenvalues) > 1 and len(set(eigenvalues)) == 1 and abs(sum(eigenvalues) - 1) < 1e-12


def published_spectrum(dim: int) -> tuple[float, ...]:
    """The eigenvalues of the published script's covariance, falling, of sum 1.

    **Arguments:**

    - `dim`: the dimension of an input.

    **Returns:** the eigenvalues.

    **Example:**

    >>> from stepwell.published import published_spectrum
    >>> published_spectrum(4)
    (0.4, 0.3, 0.2, 0.1)
    """
    total = dim * (dim + 1) / 2
    return tuple((dim - d) / total for d in range(dim))
