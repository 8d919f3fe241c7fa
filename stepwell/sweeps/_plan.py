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
from stepwell._util.text import canonical_text, shown
from stepwell.experiments import Experiment, find_kind, note_of

from ._measures import FINE, check_measures
from ._study import DRAW, Axis, Study, declared

_SECONDS = 3.0  # how long a program should take, about
_STEP_COST = 2e-8  # seconds for a step of one stacked run, by weight: what a core takes for linear attention
_SET_UP_COST = {"descent": 1e-5, "flow": 2e-3}
"""Seconds for the set-up of one stacked run, and for the whole of it where it is a flow."""
_OTHER_COST, _OTHER_STEP_COST = 3e-2, 1e-6  # the same of runs that are built one by one
_OTHER_WEIGHTS = 100  # weights of a model whose kind does not say how many it has
_MOST_AT_ONCE = 8192
_EARLIEST = 1e-4  # of a flow, the part of its length from which on points are spread over all lengths of time
_BYTES = 2**28  # what the curves and moments of a program may take


@dataclasses.dataclass(frozen=True)
class Block:
    """Some runs of a study: fields that all share, and arrays of those that differ."""

    common: Mapping[str, Any]
    fields: Mapping[str, np.ndarray]
    places: np.ndarray  # their places in the study, counted in the order of its axes, the last fastest

    @classmethod
    def joined(cls, blocks: Sequence["Block"]) -> "Block":
        common, fields = {}, {}
        for name in sorted({name for block in blocks for name in (*block.common, *block.fields)}):
            constants = {value_text(block.common[name]) for block in blocks if name in block.common}
            varying = [block.fields[name] for block in blocks if name in block.fields]
            distinct = constants | {repr(value) for values in varying for value in np.unique(values).tolist()[:2]}
            if len(distinct) == 1:
                common[name] = blocks[0].configuration()[name]
            elif len(varying) == len(blocks):
                fields[name] = np.concatenate(varying)
            else:
                fields[name] = np.fromiter((value for block in blocks for value in block.column(name)), object)
        return cls(common, fields, np.concatenate([block.places for block in blocks]))

    def __len__(self) -> int:
        return self.places.size

    @functools.cached_property
    def names(self) -> np.ndarray:
        """The names of runs that differ in numbers."""
        return digests(self.common, {name: _texts(values) for name, values in self.fields.items()}, len(self))

    def take(self, rows: np.ndarray) -> "Block":
        return Block(self.common, {name: values[rows] for name, values in self.fields.items()}, self.places[rows])

    def configuration(self, row: int = 0) -> dict[str, Any]:
        return {**self.common, **{name: values[[row]].tolist()[0] for name, values in self.fields.items()}}

    def column(self, name: str) -> list[Any]:
        return self.fields[name].tolist() if name in self.fields else [self.common[name]] * len(self)


def _texts(values: np.ndarray) -> list[str]:
    """The JSON of each number."""
    distinct, places = np.unique(values, return_inverse=True)
    return np.array(list(map(repr, distinct.tolist())), object)[places].tolist()


def blocks_of(study: Study) -> list[Block]:
    """All runs of a study, in blocks; every combination is checked, and no run may be there twice."""
    numbers = {axis.name: made for axis in study.axes if (made := _numbers(axis)) is not None}
    free = [axis for axis in study.axes if axis.name in numbers]
    tied = [axis for axis in study.axes if axis.name not in numbers]
    strides = {axis.name: math.prod(study.shape[number + 1 :]) for number, axis in enumerate(study.axes)}
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
            _is_free(first, name)
            and all(  # the number is all that changes between the ends of its range
                _described(base, {**values, **firsts, name: end}).canonical() == {**canonical, name: end}
                for end in {each.min().item(), each.max().item()}
            )
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


def _described(base: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these values, if a study can have it."""
    changes: dict[str, Any] = {"seed": values["seed"]} if "seed" in values else {}
    for name, value in values.items():
        section, dot, field = name.partition(".")
        if dot:
            changes.setdefault(section, {})[field] = value
    experiment = base.replace(**changes)
    record = experiment.record
    for name in ("test_sequences", "value_weights"):
        if record[name]:
            raise InvalidInput(f"{name} is for single runs (stepwell train); leave it out of a study")
    if record.spacing == "steps":
        raise InvalidInput(
            "spacing is steps, those of the solver, which differ from run to run; many runs are recorded at the same "
            "times, so give record spacing linear or log"
        )
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
        here, there = (np.unravel_index(one, study.shape) for one in (place, seen.setdefault(name, place)))
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
    allowed = arguments_of(block.configuration())
    for name in block.fields:
        if name not in allowed:
            parts = []
            for value in np.unique(block.fields[name]):
                part = block.take(np.flatnonzero(block.fields[name] == value))
                others = {other: values for other, values in part.fields.items() if other != name}
                parts += _split_by_program(Block({**block.common, name: value.item()}, others, part.places))
            return parts
    return [block]


def _at(axes: list[Axis], place: Any) -> dict[str, Any]:
    return {
        name: values[number] for axis, number in zip(axes, place, strict=True) for name, values in axis.fields.items()
    }


def names_of(blocks: list[Block]) -> np.ndarray:
    names = np.zeros((sum(map(len, blocks)), DIGEST), np.uint8)
    for block in blocks:
        names[block.places] = block.names
    return names


@dataclasses.dataclass(frozen=True)
class Program:
    """Runs that one program computes: of equal shapes, different in numbers that it takes as arguments."""

    blocks: tuple[Block, ...]
    size: int  # how many it computes at once

    @property
    def runs(self) -> int:
        return sum(map(len, self.blocks))

    def parts(self) -> Iterator[Block]:
        runs = Block.joined(self.blocks)
        for begin in range(0, len(runs), self.size):
            yield runs.take(np.arange(begin, min(begin + self.size, len(runs))))


def programs_of(blocks: list[Block], *, most_bytes: float = _BYTES) -> list[Program]:
    """Blocks whose runs one program can compute, put together."""
    groups: dict[tuple[Any, ...], list[Block]] = {}
    for block in blocks:
        first = block.configuration()
        fixed = {name: value for name, value in first.items() if name not in arguments_of(first)}
        shapes = tuple(len(value) for _, value in sorted(first.items()) if isinstance(value, list))
        groups.setdefault((canonical_text(fixed), *sorted(first), shapes), []).append(block)
    made = []
    for group in groups.values():
        runs = sum(map(len, group))
        at_once = min(_at_once(group[0].configuration(), most_bytes), 1 << max(runs - 1, 0).bit_length())
        made.append(Program(tuple(group), at_once))
    return made


def is_stacked(configuration: Mapping[str, Any]) -> bool:
    """Whether the models and losses of many such runs are built at once (`build_stacked`), as the kinds of their task,
    model and objective say."""
    return (
        rotated_field(configuration) is not None
        and find_kind("objective", configuration["objective.kind"]).notes.get("rotates", False)
        and _noted(configuration, "divisors") is not None
        and configuration["training.kind"] in ("flow", "descent")
        and configuration.get("training.until") != "converged"
    )


def rotated_field(configuration: Mapping[str, Any]) -> str | None:
    field = find_kind("task", configuration["task.kind"]).notes.get("rotates")
    return field and f"task.{field}"


def arguments_of(configuration: Mapping[str, Any]) -> set[str]:
    """The fields that may differ between the runs of one program: seeds and numbers that are not integers; of models
    that are drawn at once the scale alone. What is built one by one is grouped by its structure."""
    fixed = ("training.", "record.")
    made = {name for name, value in configuration.items() if _is_float(value) and not name.startswith(fixed)}
    made |= {"seed", "training.rate"} if _is_plain_descent(configuration) else {"seed"}
    if is_stacked(configuration):
        made = {name for name in made if not name.startswith("model.") or name == "model.scale"}
        made.add(str(rotated_field(configuration)))
        # Under another normalization the time of the weights depends on the length, and a flow has one for all.
        divided = configuration.get("model.normalization", "1/N") == "1/N"
        if (divided or configuration["training.kind"] == "descent") and isinstance(
            configuration.get("task.context"), int
        ):
            made.add("task.context")
    return made


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or isinstance(value, list) and all(isinstance(one, float) for one in value)


def _is_plain_descent(configuration: Mapping[str, Any]) -> bool:
    rule = configuration.get("training.optimizer"), configuration.get("training.schedule")
    return configuration["training.kind"] == "descent" and rule == ("sgd", "constant")


def fine_steps(steps: int) -> np.ndarray:
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


def _noted(configuration: Mapping[str, Any], note: str) -> Any:
    """What a function among the notes of the model returns for its values, the dimension and the number of outputs."""
    function = note_of(configuration["model.kind"], note)
    if function is None:
        return None
    values = {name.removeprefix("model."): value for name, value in configuration.items()}
    dims = configuration.get("task.dims")
    outputs = len(dims) if isinstance(dims, list | tuple) else _integer(configuration, "task.outputs", 1)
    return function(values, _dim(configuration), outputs)


def weights_of(configuration: Mapping[str, Any]) -> int:
    return _noted(configuration, "weights") or _OTHER_WEIGHTS


def seconds_of(configuration: Mapping[str, Any]) -> float:
    stacked = is_stacked(configuration)
    set_up = _SET_UP_COST[configuration["training.kind"]] if stacked else _OTHER_COST
    steps = _integer(configuration, "training.steps", 0)
    return set_up + (_STEP_COST if stacked else _OTHER_STEP_COST) * steps * weights_of(configuration)


def bytes_of(configuration: Mapping[str, Any]) -> int:
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
