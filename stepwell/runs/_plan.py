"""From a study to its runs, and from runs to the programs that compute many of them at once."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell.published import flows, infinite, run_in

from ._configuration import DIGEST, canonical_text, digests, value_text
from ._fields import configuration_of
from ._measures import FINE, check_measures, is_closed_form
from ._study import Study

_FREE = ("seed", "init", "lr", "noise")
"""Fields that are numbers of the canonical configuration as they are, whatever the others are."""
_SECONDS = 3.0
"""How long a program should take, about."""
_STEP_COST = 2e-8
"""Seconds for a step of one run, by weight: what a core takes for linear attention over infinitely many sequences."""
_SET_UP_COST = {"population": 1e-5, "population-flow": 2e-3, "moments": 2e-2, "flow": 3e-2, "sampled": 1e-1}
"""Seconds for the set-up of one run, by engine, and for the whole of it where it is a flow."""
_REGRESSIONS_COST = 1.4e-2
"""Seconds for a flow of several regressions, by weight."""
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
    """All runs of a study, in blocks. Every value is checked, and every combination of those that are not numbers."""
    timed = "until" in study.base or any("until" in axis.fields for axis in study.axes)
    free_names = [name for name in _FREE if not (name == "lr" and timed)]
    free = [axis for axis in study.axes if all(name in free_names for name in axis.fields)]
    tied = [axis for axis in study.axes if axis not in free]
    varied = {name: _numbers(name, values) for axis in free for name, values in axis.fields.items()}
    strides = dict(zip(map(id, study.axes), _strides(study.shape), strict=True))
    rows = np.indices(tuple(map(len, free))).reshape(len(free), math.prod(map(len, free)))
    offset = sum((place * strides[id(axis)] for axis, place in zip(free, rows, strict=True)), np.zeros(1, np.int64))
    fields = {name: varied[name][place] for axis, place in zip(free, rows, strict=True) for name in axis.fields}
    made = []
    for place in np.ndindex(*map(len, tied)):
        described = {**study.base, **_at(tied, place), **_firsts(varied)}
        for name, values in varied.items():  # the ends of a range are as good as all of it
            for value in {values.min().item(), values.max().item()} - {described[name]}:
                run_in({**described, name: value}, "the study")
        common = configuration_of(run_in(described, "the study"), study.record)
        check_measures(common, study.record.measure)
        for name in varied:
            common.pop(name, None)
        start = sum(number * strides[id(axis)] for axis, number in zip(tied, place, strict=True))
        made += _split_by_program(Block(common, fields, np.asarray(offset + start, np.int64)))
    return made


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


def _at(axes: list[Any], place: Any) -> dict[str, Any]:
    return {
        name: values[number] for axis, number in zip(axes, place, strict=True) for name, values in axis.fields.items()
    }


def _firsts(varied: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: values[0].item() for name, values in varied.items()}


def _numbers(name: str, values: list[Any]) -> np.ndarray:
    if name == "seed":
        return np.array([_check.whole(name, value, least=0) for value in values], np.int64)
    return np.array([_check.number(name, value) for value in values], np.float64) + 0.0  # no -0


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
    groups: dict[tuple[str, ...], list[Block]] = {}
    for block in blocks:
        first = block.first
        fixed = {name: value for name, value in first.items() if name not in arguments_of(first)}
        groups.setdefault((canonical_text(fixed), *sorted(first)), []).append(block)
    made = []
    for group in groups.values():
        runs = sum(block.places.size for block in group)
        at_once = min(_at_once(group[0].first, most_bytes), 1 << max(runs - 1, 0).bit_length())
        made.append(Program(tuple(group), at_once))
    return made


def arguments_of(configuration: Mapping[str, Any]) -> set[str]:
    """The fields that may differ between the runs of one program."""
    made = {"seed", "init"} | (set() if flows(configuration["engine"]) else {"lr"})
    if not configuration.get("optimiser") == "sgd" or configuration.get("schedule") != "constant":
        made -= {"lr"}
    if is_closed_form(configuration):
        made |= {"eigenvalues", "task_eigenvalues", "noise"} | (
            {"context"} if isinstance(configuration["context"], int) else set()
        )
    return made


def fine_steps(epoch: int, *, flowing: bool = False) -> np.ndarray:
    """The steps at which losses are measured; a flow is not bound to whole steps."""
    if flowing:  # a drop may come early: as many points of every length of time
        half = FINE // 2
        return np.union1d(np.linspace(0.0, epoch, half + 1), np.geomspace(_EARLIEST * epoch, epoch, half))
    if epoch <= FINE:
        return np.arange(epoch + 1)
    return np.unique(np.linspace(0, epoch, FINE + 1).round().astype(np.int64))


def kept_steps(epoch: int, points: int, spacing: str) -> np.ndarray:
    """The steps at which losses are kept, from the first to the last."""
    if spacing == "linear":
        return np.unique(np.linspace(0, epoch, points).round().astype(np.int64))
    between = np.geomspace(1, epoch, points - 1)[:-1] if points > 2 else []
    return np.unique(np.concatenate([[0], np.round(between), [epoch]]).astype(np.int64))


def weights_of(configuration: Mapping[str, Any]) -> int:
    """How many weights a run has, about."""
    heads = configuration["heads"]
    if "dims" in configuration:
        return 4 * heads * len(configuration["dims"])
    width = configuration["dim"] + configuration["out_dim"]
    return heads * width * (configuration["out_dim"] + 2 * configuration.get("rank", width))


def seconds_of(configuration: Mapping[str, Any]) -> float:
    """What a run takes, about, as one of many."""
    made = _SET_UP_COST[configuration["engine"]]
    if flows(configuration["engine"]):
        return _REGRESSIONS_COST * weights_of(configuration) if "dims" in configuration else made
    scale = 1.0 if infinite(configuration["engine"]) or "dims" in configuration else 50.0
    return made + scale * _STEP_COST * configuration["epoch"] * weights_of(configuration)


def bytes_of(configuration: Mapping[str, Any]) -> int:
    """What is kept of a run on the disk, about."""
    return 8 * (configuration["points"] + configuration["snapshots"] * weights_of(configuration)) + 100


def _at_once(configuration: Mapping[str, Any], most_bytes: float) -> int:
    """How many runs a program computes: a power of two, as many as take a few seconds and fit into the memory."""
    points = min(configuration["epoch"], FINE) + 1
    each = 8 * (2 * points + 12 * weights_of(configuration)) + 8 * 64
    if flows(configuration["engine"]):
        each += 16 * points * weights_of(configuration)
    if configuration["engine"] in ("moments", "flow") and "dims" not in configuration:
        width = configuration["dim"] + configuration["out_dim"]
        each += 16 * (configuration["dim"] * width * (width + 1) // 2) ** 2
    if configuration["engine"] == "sampled":
        longest = (
            configuration["context"] if isinstance(configuration["context"], int) else max(configuration["context"])
        )
        each += 64 * configuration["trainset_size"] * (longest + 1) * (configuration.get("dim", 8) + 1)
    most = min(_SECONDS / seconds_of(configuration), most_bytes / each, _MOST_AT_ONCE)
    if most_bytes / each < 1:
        raise InvalidInput(
            f"one run takes {each / 1e9:.2g} GB of memory; take fewer sequences, steps or dimensions, or allow more by "
            "limits.gigabytes"
        )
    return 1 << max(int(most).bit_length() - 1, 0)
