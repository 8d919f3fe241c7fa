"""From a study to its runs, and from runs to the programs that compute many of them at once.

Numbers that are declared `free` are not resolved combination by combination: the two ends are, and it is verified there
that nothing else of the canonical form changes. All else is resolved to one `Experiment` for each combination.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stepwell._util.errors import InvalidInput
from stepwell._util.run_names import DIGEST, digests, first_of_each, value_text
from stepwell._util.text import shown
from stepwell.experiments import FINE, Experiment, canonical_text, find_kind, note_of, require_spacing

from ._measures import check_measures
from ._study import DRAW, Axis, Study, declared

_SECONDS = 3.0
"""How long a program should take, about."""
_STEP_COST = 2e-8
"""Seconds for a step of one stacked run, by weight: what a core takes for linear attention."""
_SET_UP_COST = {"descent": 1e-5, "flow": 2e-3}
"""Seconds for the set-up of one stacked run, and for the whole of it where it is a flow."""
_OTHER_COST, _OTHER_STEP_COST = 3e-2, 1e-6
"""The same of runs that are built one by one."""
_OTHER_WEIGHTS = 100
"""Weights of a model whose kind does not say how many it has."""
_MOST_AT_ONCE = 8192
_EARLIEST = 1e-4
"""Of a flow, the part of its length from which on points are spread over all lengths of time."""
_BYTES = 2**28
"""What the curves and moments of a program may take."""


@dataclasses.dataclass(frozen=True)
class Block:
    """Runs of a study that share all fields but some numbers."""

    common: Mapping[str, Any]
    fields: Mapping[str, np.ndarray]
    places: np.ndarray
    """Their places in the study, counted in the order of its axes, the last fastest."""

    @functools.cached_property
    def names(self) -> np.ndarray:
        texts = {name: _texts(values) for name, values in self.fields.items()}
        return digests(self.common, texts, self.places.size)

    def take(self, rows: np.ndarray) -> "Block":
        return Block(self.common, {name: values[rows] for name, values in self.fields.items()}, self.places[rows])

    @property
    def first(self) -> dict[str, Any]:
        """The whole configuration of the first run."""
        return {**self.common, **{name: values[0].item() for name, values in self.fields.items()}}


def _texts(values: np.ndarray) -> list[str]:
    """The JSON of each number."""
    distinct, places = np.unique(values, return_inverse=True)
    texts = list(map(repr, distinct.tolist()))
    return [texts[place] for place in places.tolist()]


def blocks_of(study: Study) -> list[Block]:
    """All runs of a study, in blocks; every combination is checked, and no run may be there twice."""
    numbers = {axis.name: made for axis in study.axes if (made := _numbers(axis)) is not None}
    free = [axis for axis in study.axes if axis.name in numbers]
    tied = [axis for axis in study.axes if axis.name not in numbers]
    strides = dict(zip((axis.name for axis in study.axes), _strides(study.shape), strict=True))
    made = []
    for place in np.ndindex(*map(len, tied)):
        start = sum(number * strides[axis.name] for axis, number in zip(tied, place, strict=True))
        made += _resolved(study.base, _at(tied, place), free, numbers, strides, start)
    _check_effect(study, made)
    return made


def _resolved(
    base: Experiment,
    values: dict[str, Any],
    free: list[Axis],
    numbers: Mapping[str, Mapping[str, np.ndarray]],
    strides: Mapping[str, int],
    start: int,
) -> list[Block]:
    """The runs of one combination of all that is not free. An axis that turns out not to be is resolved by itself."""
    firsts = {name: values[0].item() for axis in free for name, values in numbers[axis.name].items()}
    first = _described(base, {**values, **firsts})
    canonical = first.canonical()
    for axis in free:
        if not all(
            _is_free(first, name) and _changes_alone(base, {**values, **firsts}, canonical, name, each)
            for name, each in numbers[axis.name].items()
        ):
            others, stride, made = [other for other in free if other is not axis], strides[axis.name], []
            for number in range(len(axis)):
                chosen = {**values, **_at([axis], [number])}
                made += _resolved(base, chosen, others, numbers, strides, start + number * stride)
            return made
    rows = np.indices(tuple(map(len, free))).reshape(len(free), math.prod(map(len, free)))
    places = np.full(rows.shape[1], start, np.int64)
    fields: dict[str, np.ndarray] = {}
    for axis, row in zip(free, rows, strict=True):
        places += row * strides[axis.name]
        fields |= {name: each[row] for name, each in numbers[axis.name].items()}
    common = {name: value for name, value in canonical.items() if name not in fields}
    return _split_by_program(Block(common, fields, places))


def _is_free(experiment: Experiment, name: str) -> bool:
    """Whether the kind that an experiment has declares a field to be free."""
    section, _, field = name.partition(".")
    if name == "seed":
        return True
    return find_kind(section, getattr(experiment, section).kind).fields[field].about.free  # pyright: ignore


def _changes_alone(
    base: Experiment, values: dict[str, Any], canonical: dict[str, Any], name: str, numbers: np.ndarray
) -> bool:
    """Whether a number is all that changes between the ends of its range."""
    for value in {numbers.min().item(), numbers.max().item()}:
        if _described(base, {**values, name: value}).canonical() != {**canonical, name: value}:
            return False
    return True


def _described(base: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values, if a study can have it."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        section, dot, field = name.partition(".")
        if dot:
            changes.setdefault(section, {})[field] = value
        else:
            changes[name] = value
    experiment = base.replace(**changes)
    record = experiment.record
    for name in ("test_sequences", "value_weights"):
        if record[name]:
            raise InvalidInput(f"{name} is for single runs (stepwell train); leave it out of a study")
    if experiment.training.kind == "flow":
        require_spacing(record.spacing)
    check_measures(experiment)
    return experiment


def _numbers(axis: Axis) -> dict[str, np.ndarray] | None:
    """The values of an axis by field, if all its fields are numbers that some kind declares to be free; else None."""
    made = {}
    for name, values in axis.fields.items():
        types = {field.scalar for field in declared(name) if field.about.free}
        whole = types == {int}
        if not types <= {int, float} or len(types) != 1:
            return None
        if not all(type(value) is int or (type(value) is float and not whole) for value in values):
            return None
        try:
            made[name] = np.array(values, np.int64 if whole else np.float64) + (0 if whole else 0.0)  # no -0
        except OverflowError:
            return None
        if not np.isfinite(made[name]).all():  # which is refused where it is resolved
            return None
    return made


def _check_effect(study: Study, blocks: list[Block]) -> None:
    """Refuse an axis that changes nothing, or has a value twice. Random draws may repeat."""
    names = names_of(blocks)
    if first_of_each(names).all():
        return
    seen: dict[bytes, int] = {}
    for place, name in enumerate(map(bytes, names)):
        other = seen.setdefault(name, place)
        here, there = (np.unravel_index(one, study.shape) for one in (place, other))
        for axis, new, old in zip(study.axes, here, there, strict=True):
            if new != old and axis.name != DRAW:
                both = [
                    ", ".join(f"{field} = {shown(values[at])}" for field, values in axis.fields.items())
                    for at in (int(old), int(new))
                ]
                reason = f"{both[0]} is there twice" if both[0] == both[1] else f"{both[0]} and {both[1]} are one run"
                raise InvalidInput(f"the axis {axis.name} has values without effect: {reason}; leave one of them out")


def _split_by_program(block: Block) -> list[Block]:
    """A block divided by the numbers in it that a program cannot take as arguments."""
    allowed = arguments_of(block.first)
    for name in block.fields:
        if name not in allowed:
            parts = []
            for value in np.unique(block.fields[name]):
                rows = np.flatnonzero(block.fields[name] == value)
                others = {other: values[rows] for other, values in block.fields.items() if other != name}
                part = Block({**block.common, name: value.item()}, others, block.places[rows])
                parts += _split_by_program(part)
            return parts
    return [block]


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[number + 1 :]) for number in range(len(shape))]


def _at(axes: list[Axis], place: Any) -> dict[str, Any]:
    return {
        name: values[number] for axis, number in zip(axes, place, strict=True) for name, values in axis.fields.items()
    }


def names_of(blocks: list[Block]) -> np.ndarray:
    """The names of all runs of a study, at their places."""
    names = np.zeros((sum(block.places.size for block in blocks), DIGEST), np.uint8)
    for block in blocks:
        names[block.places] = block.names
    return names


@dataclasses.dataclass(frozen=True)
class Program:
    """Runs that one program computes: of equal shapes, different in numbers that it takes as arguments."""

    blocks: tuple[Block, ...]
    size: int
    """How many it computes at once."""

    @property
    def runs(self) -> int:
        return sum(block.places.size for block in self.blocks)

    def parts(self) -> Iterator["Work"]:
        """What is computed at once, one after another."""
        waiting: list[Block] = []
        count = 0
        for block in self.blocks:
            begin = 0
            while begin < block.places.size:
                end = min(block.places.size, begin + self.size - count)
                waiting.append(block.take(np.arange(begin, end)))
                count, begin = count + end - begin, end
                if count == self.size:
                    yield Work.of(waiting)
                    waiting, count = [], 0
        if waiting:
            yield Work.of(waiting)


@dataclasses.dataclass(frozen=True)
class Work:
    """The runs of one shard: fields that all share, and lists of values of those that differ."""

    runs: int
    common: dict[str, Any]
    fields: dict[str, list[Any]]

    @classmethod
    def of(cls, blocks: list[Block]) -> "Work":
        common, fields = {}, {}
        for name in sorted({name for block in blocks for name in (*block.common, *block.fields)}):
            constants = {value_text(block.common[name]) for block in blocks if name in block.common}
            varying = [block.fields[name] for block in blocks if name in block.fields]
            distinct = constants | {repr(value) for values in varying for value in np.unique(values).tolist()[:2]}
            if len(distinct) == 1:
                common[name] = blocks[0].first[name]
                continue
            fields[name] = [
                value
                for block in blocks
                for value in (
                    block.fields[name].tolist() if name in block.fields else [block.common[name]] * block.places.size
                )
            ]
        return cls(sum(block.places.size for block in blocks), common, fields)

    def __len__(self) -> int:
        return self.runs

    def configuration(self, row: int) -> dict[str, Any]:
        """The whole configuration of one run."""
        return {**self.common, **{name: values[row] for name, values in self.fields.items()}}

    def column(self, name: str) -> list[Any]:
        """A field of all runs."""
        return self.fields[name] if name in self.fields else [self.common[name]] * self.runs

    def take(self, rows: Sequence[int]) -> "Work":
        return Work(
            len(rows), self.common, {name: [values[row] for row in rows] for name, values in self.fields.items()}
        )


def programs_of(blocks: list[Block], *, most_bytes: float = _BYTES) -> list[Program]:
    """Blocks whose runs one program can compute, put together."""
    groups: dict[tuple[Any, ...], list[Block]] = {}
    for block in blocks:
        first = block.first
        fixed = {name: value for name, value in first.items() if name not in arguments_of(first)}
        shapes = tuple(len(value) for _, value in sorted(first.items()) if isinstance(value, list))
        groups.setdefault((canonical_text(fixed), *sorted(first), shapes), []).append(block)
    made = []
    for group in groups.values():
        runs = sum(block.places.size for block in group)
        at_once = min(_at_once(group[0].first, most_bytes), 1 << max(runs - 1, 0).bit_length())
        made.append(Program(tuple(group), at_once))
    return made


def is_stacked(configuration: Mapping[str, Any]) -> bool:
    """Whether the models and losses of many such runs are built at once (`build_stacked`)."""
    return (
        configuration["objective.kind"] == "population"
        and configuration["task.kind"] == "regression"
        and note_of(configuration["model.kind"], "divisors") is not None
        and not configuration.get("model.balanced")
        and configuration["training.kind"] in ("flow", "descent")
        and configuration.get("training.until") != "converged"
    )


def arguments_of(configuration: Mapping[str, Any]) -> set[str]:
    """The fields that may differ between the runs of one program.

    Of runs that are built one by one these are numbers that are not integers: what they build may have one structure
    all the same, and is grouped by it when it is built.
    """
    plain = _is_plain_descent(configuration)
    if not is_stacked(configuration):
        fixed = ("training.", "record.")
        floats = {name for name, value in configuration.items() if _is_float(value) and not name.startswith(fixed)}
        return floats | {"seed"} | ({"training.rate"} if plain else set())
    made = {"seed", "model.scale", "task.eigenvalues", "task.task_eigenvalues", "task.noise", "task.directions"}
    # Under another normalization the time of the weights depends on the length, and a flow has one for all.
    lengths = configuration["training.kind"] == "descent" or configuration.get("model.normalization", "1/N") == "1/N"
    made |= {"task.context"} if lengths and isinstance(configuration["task.context"], int) else set()
    return made | ({"training.rate"} if plain else set())


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or isinstance(value, list) and all(isinstance(one, float) for one in value)


def _is_plain_descent(configuration: Mapping[str, Any]) -> bool:
    rule = configuration.get("training.optimizer"), configuration.get("training.schedule")
    return configuration["training.kind"] == "descent" and rule == ("sgd", "constant")


def fine_steps(steps: int) -> np.ndarray:
    """The steps of a descent at which losses are measured."""
    return np.unique(np.linspace(0, steps, min(steps, FINE) + 1).round().astype(np.int64))


def fine_times(end: float) -> np.ndarray:
    """The times of a flow at which losses are measured: as many for every length of time, since a drop may be early."""
    return np.union1d(np.linspace(0.0, end, FINE // 2 + 1), np.geomspace(_EARLIEST * end, end, FINE // 2))


def _dim(configuration: Mapping[str, Any]) -> int:
    eigenvalues, dims = configuration.get("task.eigenvalues"), configuration.get("task.dims")
    if isinstance(eigenvalues, list):
        return len(eigenvalues)
    return sum(dims) if isinstance(dims, list | tuple) else _integer(configuration, "task.dim", 4)


def _integer(configuration: Mapping[str, Any], name: str, default: int) -> int:
    """A field that says how much there is, if it is an integer: a user's kind may call something else so."""
    value = configuration.get(name)
    return value if isinstance(value, int) else default


def weights_of(configuration: Mapping[str, Any]) -> int:
    """How many weights a run has, about."""
    count = note_of(configuration["model.kind"], "weights")
    if count is None:
        return _OTHER_WEIGHTS
    values = {name.removeprefix("model."): value for name, value in configuration.items()}
    dims = configuration.get("task.dims")
    outputs = len(dims) if isinstance(dims, list | tuple) else _integer(configuration, "task.outputs", 1)
    return count(values, _dim(configuration), outputs)


def seconds_of(configuration: Mapping[str, Any]) -> float:
    """What a run takes, about, as one of many."""
    stacked = is_stacked(configuration)
    set_up = _SET_UP_COST[configuration["training.kind"]] if stacked else _OTHER_COST
    steps = _integer(configuration, "training.steps", 0)
    return set_up + (_STEP_COST if stacked else _OTHER_STEP_COST) * steps * weights_of(configuration)


def bytes_of(configuration: Mapping[str, Any]) -> int:
    """What is kept of a run on the disk, about."""
    points, snapshots = configuration["record.points"], configuration["record.snapshots"]
    return 8 * (2 * points + snapshots * weights_of(configuration)) + 100


def _at_once(configuration: Mapping[str, Any], most_bytes: float) -> int:
    """How many runs a program computes: a power of two, as many as take a few seconds and fit into the memory."""
    weights = weights_of(configuration)
    points = min(_integer(configuration, "training.steps", FINE), FINE) + 1
    each = 8 * (2 * points + 12 * weights) + 8 * 64
    if configuration["training.kind"] == "flow":
        each += 16 * points * weights
    dim = _dim(configuration)
    width = dim + _integer(configuration, "task.outputs", 1)
    if find_kind("objective", configuration["objective.kind"]).notes.get("holds") == "moments":
        each += 16 * (dim * width * (width + 1) // 2) ** 2
    else:
        each += 64 * _integer(configuration, "objective.sequences", 0) * (_longest(configuration) + 1) * width
    if each > most_bytes:
        raise InvalidInput(
            f"one run takes {each / 1e9:.2g} GB of memory; take fewer sequences, steps or dimensions, or allow more by "
            "limits.gigabytes"
        )
    most = min(_SECONDS / seconds_of(configuration), most_bytes / each, _MOST_AT_ONCE)
    return 1 << max(int(most).bit_length() - 1, 0)


def _longest(configuration: Mapping[str, Any]) -> int:
    context = configuration.get("task.context")
    lengths = context if isinstance(context, list) else [context]
    return max((length for length in lengths if isinstance(length, int)), default=31)
