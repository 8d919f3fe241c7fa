"""A study: an experiment, and what is varied in it.

As a TOML file it has the tables of an experiment (`stepwell train --dry-run` prints them) and these besides:

- `[sweep]`: values of any field, crossed with each other: a list; `{from, to, count, spacing}`, a grid, "linear" or
  "log"; or `{from, count}`, integers that follow each other, such as seeds. A field has its name, such as `heads`, or
  its name with its section, `"model.heads"`;
- `[[sweep.together]]`: lists of equal length that are varied together, as one axis;
- `[sweep.draws]`: `count` random draws, as one axis: each field `{from, to, spacing}` or `{choose = […]}`;
- `[limits]`: `runs`, `minutes` and `gigabytes`, beyond which nothing is begun.

Of each run less is kept by default than of a single one: `RECORD`. Nothing here imports JAX.
"""

import dataclasses
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.text import nearest, shown
from stepwell._util.toml import document_in
from stepwell.experiments import SECTIONS, SEED, DeclaredField, Experiment, full_name, kinds

from ._measures import MEASURES, scalars_in

_LARGEST = 10**8  # runs of a study, at the most
_MOST_VALUES = 10**7  # values of one axis, at the most
RECORD = {"points": 65, "spacing": "linear", "snapshots": 2}
"""What is kept of each run of a study, unless it says otherwise."""
DRAW = "draw"  # the name of the axis of random draws


@dataclasses.dataclass(frozen=True)
class Axis:
    """Fields that are varied together, as one dimension of the result.

    **Arguments:**

    - `name`: of the dimension.
    - `fields`: values by the dotted names of fields, all lists of one length.
    """

    name: str
    fields: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds beyond which a sweep begins no further work.

    **Arguments:**

    - `runs`: the largest number of runs that are computed.
    - `minutes`: the time after which nothing new is begun.
    - `gigabytes`: the memory that runs computed at once may take.
    """

    runs: int | None = None
    minutes: float | None = None
    gigabytes: float | None = None

    @classmethod
    def of(cls, given: Any) -> "Limits":
        """Return the limits that a table describes, checked."""
        given = _check_keys("limits", given, ("runs", "minutes", "gigabytes"))
        made = {n: checks.number(f"the limit of {n}", given[n], least=0.0, above=True) for n in given if n != "runs"}
        return cls(checks.whole("the limit of runs", given["runs"]) if "runs" in given else None, **made)


@dataclasses.dataclass(frozen=True)
class Study:
    """An experiment, and the fields that are varied in it.

    **Arguments:**

    - `base`: the experiment, with what is recorded of each run.
    - `axes`: what is varied, in the order of the dimensions of the result.
    - `limits`: when no further work is begun.

    **Example:**

    >>> from stepwell.sweeps import Study
    >>> scales = {"from": 1e-3, "to": 1e-1, "count": 3, "spacing": "log"}
    >>> study = Study.of({"model": {"kind": "merged"}}, {"scale": scales, "seed": [1, 2]})
    >>> study.shape, study.axes[0].fields["model.scale"]
    ((3, 2), [0.001, 0.01, 0.1])
    """

    base: Experiment
    axes: tuple[Axis, ...]
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for axis in self.axes:
            for name, values in axis.fields.items():
                if name in seen:
                    raise InvalidInput(f"{name} is varied twice, on two axes; give it once")
                if len(values) != len(axis):
                    lengths = {field: len(each) for field, each in axis.fields.items()}
                    raise InvalidInput(f"what varies together has lists of lengths {lengths}; all must be the same")
                seen.add(name)
        if math.prod(map(len, self.axes)) > _LARGEST:
            raise InvalidInput(f"the study has {math.prod(map(len, self.axes))} runs; at most {_LARGEST} are possible")

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each axis."""
        return tuple(map(len, self.axes))

    @property
    def size(self) -> int:
        """The number of runs."""
        return math.prod(self.shape)

    @classmethod
    def of(
        cls,
        base: Any,
        sweep: Any,
        *,
        together: Any = (),
        draws: Any = None,
        record: Any = None,
        limits: Any = None,
        source: str = "the study",
    ) -> "Study":
        """Return the study that plain values describe, as a TOML file has them.

        **Arguments:**

        - `base`: the `Experiment`, or its tables. What is varied takes the place of what it says.
        - `sweep`, `together`, `draws`, `limits`: the tables of these names; `together` is a list of them.
        - `record`: what is kept of each run, as the table `record` of an experiment.
        - `source`: what messages call the study.
        """
        experiment = base if isinstance(base, Experiment) else Experiment.from_dict(_table(base, source), source)
        given = {**experiment.record.given, **_table({} if record is None else record, "record")}
        experiment = experiment.replace(record={**RECORD, **given})
        axes = [_axis({name: given}, _values) for name, given in _table(sweep, "sweep").items()]
        for group in _tables_in(together, "together"):
            if not group:
                raise InvalidInput(f"{source} has an empty table sweep.together; give it lists, or leave it out")
            axes.append(_axis(group, _values))
        if draws is not None:
            axes.append(_drawn(_table(draws, "draws")))
        bounds = limits if isinstance(limits, Limits) else Limits.of({} if limits is None else limits)
        return cls(experiment, tuple(axes), bounds)

    @classmethod
    def read(cls, path: str) -> "Study":
        """Return the study in a TOML file; `InvalidInput` is raised where the file has something else."""
        return cls.in_document(document_in(path), path)

    @classmethod
    def in_document(cls, document: Mapping[str, Any], source: str) -> "Study":
        """Return the study in a TOML file that was read already; `source` is its name."""
        _check_keys(source, document, (*SECTIONS, "sweep", "limits", "seed"))
        own = {name: value for name, value in document.items() if name not in ("sweep", "limits")}
        sweep = dict(_table(document.get("sweep", {}), "sweep"))
        together, draws = sweep.pop("together", []), sweep.pop("draws", None)
        return cls.of(own, sweep, together=together, draws=draws, limits=document.get("limits"), source=source)


def short_name(name: str) -> str:
    """Return the name of a field without its section, where that says which is meant.

    **Arguments:**

    - `name`: the dotted name of a field.

    **Returns:** the short name, which the dimension of a result has; of a kind, the name of its section. A field with
    the name of a scalar keeps its section.

    **Example:**

    >>> sw.sweeps.short_name("model.heads"), sw.sweeps.short_name("task.kind")
    ('heads', 'task')
    """
    section, dot, field = name.partition(".")
    if not dot:
        return name
    short = section if field == "kind" else field
    if short in (DRAW, "run", "stored") or any(re.fullmatch(scalar, short) for scalar in scalars_in([*MEASURES])):
        return name  # the result has something else of this name
    try:
        return short if full_name(short) == name else name
    except InvalidInput:
        return name


def declared(name: str) -> list[DeclaredField]:
    """The declarations of a field of this dotted name, of every kind that has it."""
    section, _, field = name.partition(".")
    if name == "seed":
        return [SEED]
    return [kind.fields[field] for kind in kinds(section).values() if field in kind.fields]  # pyright: ignore


def _axis(given: Mapping[str, Any], values_of: Callable[[str, Any], list[Any]], name: str = "") -> Axis:
    fields: dict[str, list[Any]] = {}
    for field, each in given.items():
        full = full_name(field)
        if full in fields:
            raise InvalidInput(f"{full} is varied twice on one axis; give it once")
        fields[full] = values_of(field, each)
    return Axis(name or short_name(next(iter(fields))), fields)


def _is_integer(name: str) -> bool:
    """Whether a field takes integers and no other numbers."""
    types = {part for field in declared(name) for part in (get_args(field.kind) or (field.kind,))}
    return int in types and float not in types


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInput(f"{name} is {shown(value)}; it must be a table of values by name")
    return value


def _tables_in(value: Any, name: str) -> Iterable[Mapping[str, Any]]:
    if isinstance(value, Mapping) or not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidInput(f"{name} is {shown(value)}; it must be a list of tables ([[sweep.{name}]])")
    return [_table(each, name) for each in value]


def _check_keys(name: str, given: Any, allowed: Sequence[str]) -> Mapping[str, Any]:
    for key in _table(given, name):
        if key not in allowed:
            raise InvalidInput(f"{name} has the unknown key {shown(key)}; {nearest(key, allowed)}")
    return given


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, Mapping):
        return _grid(name, given)
    if isinstance(given, np.ndarray | range):
        given = list(given)
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise InvalidInput(
            f"{name} is {shown(given)}; an axis is a list of values, a grid {{from, to, count}}, or {{from, count}}"
        )
    return [value.tolist() if isinstance(value, np.generic | np.ndarray) else value for value in given]


def _grid(name: str, given: Mapping[str, Any]) -> list[Any]:
    keys = _check_keys(name, given, ("from", "to", "count", "spacing"))
    if "from" not in keys or "count" not in keys or ("spacing" in keys and "to" not in keys):
        raise InvalidInput(f"{name} is {shown(dict(given))}; a grid has from, to and count, or from and count alone")
    count = _count(name, given["count"])
    if "to" not in keys:
        first = checks.whole(f"from of {name}", given["from"], least=0)
        return list(range(first, first + count))
    first, last, logarithmic = _range(name, given)
    if count == 1:
        raise InvalidInput(f"{name} has a grid of 1 value from {first:g} to {last:g}; give at least 2, or a list")
    return (np.geomspace if logarithmic else np.linspace)(first, last, count).tolist()


def _range(name: str, given: Mapping[str, Any]) -> tuple[float, float, bool]:
    first, last = (checks.number(f"{end} of {name}", given[end]) for end in ("from", "to"))
    spacing = checks.one_of(f"spacing of {name}", given.get("spacing", "linear"), ("linear", "log"))
    if spacing == "log" and not (first > 0 and last > 0):
        raise InvalidInput(f"{name} goes from {first:g} to {last:g} with spacing log; both must be above 0")
    return first, last, spacing == "log"


def _count(name: str, given: Any) -> int:
    count = checks.whole(f"count of {name}", given)
    if count > _MOST_VALUES:
        raise InvalidInput(f"{name} has {count} values; at most {_MOST_VALUES} are possible")
    return count


def _drawn(given: Mapping[str, Any]) -> Axis:
    """Random draws. Each field has random numbers of its own: to add one does not change the others."""
    if "count" not in given:
        raise InvalidInput("draws have no count; say how many there are")
    count = _count("draws", given["count"])
    seed = checks.whole("seed of draws", given.get("seed", 0), least=0)

    def drawn(name: str, each: Any) -> list[Any]:
        full = full_name(name)
        numbers = np.random.default_rng([seed, zlib.crc32(full.encode())])
        table = _check_keys(f"{name} of draws", each, ("from", "to", "spacing", "choose"))
        if set(table) == {"choose"}:
            choices = _values(name, table["choose"])
            return [choices[place] for place in numbers.integers(len(choices), size=count)]
        if "choose" in table or "from" not in table or "to" not in table:
            raise InvalidInput(f"{name} of draws is {shown(dict(table))}; give it from and to, or choose a list")
        if _is_integer(full):
            low = checks.whole(f"from of {name}", table["from"], least=0)
            high = checks.whole(f"to of {name}", table["to"])
            return numbers.integers(low, high, size=count, endpoint=True).tolist()
        first, last, logarithmic = _range(name, table)
        uniform = numbers.random(count)
        return (first * (last / first) ** uniform if logarithmic else first + (last - first) * uniform).tolist()

    fields = {name: each for name, each in given.items() if name not in ("count", "seed")}
    if not fields:
        raise InvalidInput("draws have no field; name what is drawn, for instance scale = {from = 0.001, to = 0.1}")
    return _axis(fields, drawn, DRAW)
