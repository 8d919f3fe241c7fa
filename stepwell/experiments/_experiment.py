"""A run described by settings: one frozen value, from which everything that runs, predicts or stores takes it."""

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from stepwell._util.errors import InvalidInput
from stepwell._util.text import nearest, shown

from ._field import DeclaredField, Field
from ._kind import SECTIONS, Kind, SectionName, find_kind, kinds

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.models import AbstractModel
    from stepwell.tasks import AbstractTask

    from ._prediction import Prediction
    from ._training import AbstractTraining

NUMERICS = 2
"""Version of the numerics, raised when the numbers of runs change by more than rounding: their names change with it."""
_DEFAULT_TASK = "regression"
SEED = DeclaredField.of(
    "seed",
    Annotated[int, Field("seed of task, data and initial weights", least=0, most=2**32 - 1, free=True)],
    0,
)
"""The declaration of the seed, which belongs to no section."""


class Section(Mapping[str, Any]):
    """One part of an experiment: its kind, and a value for each of its fields, as attributes and by name.

    `given` has the values that were given, `canonical` those that the name of the experiment is made of.
    """

    __slots__ = ("_values", "canonical", "given", "kind")

    def __init__(self, kind: str, given: Mapping[str, Any], values: Mapping[str, Any], canonical: Mapping[str, Any]):
        make = object.__setattr__
        make(self, "kind", kind)
        make(self, "given", MappingProxyType(dict(given)))
        make(self, "_values", MappingProxyType(dict(values)))
        make(self, "canonical", MappingProxyType(dict(canonical)))

    kind: str
    given: Mapping[str, Any]
    canonical: Mapping[str, Any]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an experiment does not change; make another: experiment.replace(…={{{name!r}: …}})")

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"{self.kind} has no field {name}; {nearest(name, list(self._values))}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __reduce__(self) -> Any:
        return Section, (self.kind, dict(self.given), dict(self._values), dict(self.canonical))

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in self.canonical.items())})"


class Built(NamedTuple):
    """The objects of an experiment."""

    task: "AbstractTask"
    model: "AbstractModel"
    objective: Any


class Experiment:
    """A run, described once: task, model, objective, training, what is recorded, and a seed.

    A section is a kind by its name, or a dictionary of its fields with `kind`. What is left out has its default, which
    may depend on the sections before it. Every value that is given is used or refused.

    **Arguments:**

    - `task`: "regression" (the default), "mixture", "multitask", or a kind of your own.
    - `model`: "separate", "merged" or another that `kinds("model")` lists, or a kind of your own.
    - `objective`: how the loss is computed: "population", "moments", "sampled", "online", "spectral", "reduced",
      "exact", or a kind of your own.
    - `training`: "flow", "descent", or a kind of your own.
    - `record`: what is kept, and when.
    - `seed`: the keys of data, task and initial weights follow from it.

    **Example:**

    >>> import stepwell as sw
    >>> experiment = sw.Experiment(task={"dim": 2, "context": 31}, model={"scale": 0.1}, seed=1)
    >>> experiment.model.kind, experiment.model.heads, experiment.training.kind
    ('separate', 2, 'flow')
    >>> run = experiment.run(progress=False)
    >>> run.attrs["outcome"]
    'converged'
    >>> experiment.replace(model={"head": 3})
    Traceback (most recent call last):
        ...
    stepwell._util.errors.InvalidInput: the model kind separate has no field 'head'; did you mean heads?
    """

    __slots__ = ("__dict__", "model", "objective", "record", "seed", "task", "training")

    task: Section
    model: Section
    objective: Section
    training: Section
    record: Section
    seed: int

    def __init__(
        self,
        task: Any = None,
        model: Any = None,
        objective: Any = None,
        training: Any = None,
        record: Any = None,
        seed: Any = None,
    ):
        given = {"task": task, "model": model, "objective": objective, "training": training, "record": record}
        sections: dict[str, Any] = {"seed": SEED.convert(0 if seed is None else seed)}
        set_value = object.__setattr__
        for name in SECTIONS:
            sections[name] = section_of_given(name, given[name], sections)
            set_value(self, name, sections[name])
        set_value(self, "seed", sections["seed"])

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an experiment does not change; make another: experiment.replace({name}=…)")

    # ---- what it is ----

    def canonical(self) -> dict[str, Any]:
        """Return the canonical form: every value that matters, by dotted name, in one way of saying it.

        **Returns:** plain values by names such as "model.heads"; what has no effect is not among them.
        """
        made: dict[str, Any] = {}
        for name in SECTIONS:
            section: Section = getattr(self, name)
            if name != "record":
                made[f"{name}.kind"] = section.kind
            for field, value in section.canonical.items():
                if value is not None:
                    made[f"{name}.{field}"] = list(value) if isinstance(value, tuple) else value
        return {**made, "seed": self.seed, "numerics": NUMERICS}

    @functools.cached_property
    def name(self) -> str:
        """The name of the run: 32 hexadecimal digits of a hash of its canonical form."""
        return name_of(self.canonical())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self.canonical() == other.canonical()

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> Any:
        return _restored, (self.given(),)

    def given(self) -> dict[str, Any]:
        """Return what was given, as nested dictionaries: what `Experiment(**…)` takes."""
        made: dict[str, Any] = {}
        for name in SECTIONS:
            given = getattr(self, name).given
            if given:
                made[name] = {field: list(v) if isinstance(v, tuple) else v for field, v in given.items()}
        return {**made, "seed": self.seed}

    def to_dict(self) -> dict[str, Any]:
        """Return the whole experiment as nested dictionaries of plain values, defaults filled in.

        **Returns:** what `Experiment(**…)`, a TOML file or JSON has. Of what is recorded there is what was given.
        """
        made: dict[str, Any] = {}
        for name in SECTIONS:
            section: Section = getattr(self, name)
            values = section.given if name == "record" else section.canonical
            kind = {} if name == "record" else {"kind": section.kind}
            fields = {f: list(v) if isinstance(v, tuple) else v for f, v in values.items() if v is not None}
            if kind or fields:
                made[name] = {**kind, **fields}
        return {**made, "seed": self.seed}

    def to_toml(self) -> str:
        """Return the experiment as the text of a TOML file."""
        from ._toml import as_toml

        return as_toml(self.to_dict())

    @classmethod
    def from_canonical(cls, canonical: Mapping[str, Any]) -> "Experiment":
        """Return the experiment that has this canonical form.

        **Arguments:**

        - `canonical`: values by dotted name, as `canonical` returns them and a store keeps them.

        **Returns:** the experiment.
        """
        _check_table(canonical, "the canonical form")
        version = canonical.get("numerics")
        if version != NUMERICS:
            raise InvalidInput(f"the run is of version {version} of the numerics; this program has {NUMERICS}")
        nested: dict[str, Any] = {}
        for name, value in canonical.items():
            section, dot, field = name.partition(".")
            if dot:
                nested.setdefault(section, {})[field] = value
            elif name != "numerics":
                nested[name] = value
        return cls.from_dict(nested, "the canonical form")

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], source: str = "the experiment") -> "Experiment":
        """Return the experiment that nested dictionaries describe.

        **Arguments:**

        - `document`: tables `task`, `model`, `objective`, `training` and `record`, and `seed`.
        - `source`: what messages call it.

        **Returns:** the experiment.
        """
        _check_table(document, source)
        if "sweep" in document:
            raise InvalidInput(f"{source} has the table sweep, so that it is a study; run it with `stepwell sweep`")
        for name in document:
            if name not in (*SECTIONS, "seed"):
                raise InvalidInput(f"{source} has the unknown key {shown(name)}; {_belongs(name)}")
        return cls(**document)

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Experiment":
        """Return the experiment in a TOML or JSON file.

        **Arguments:**

        - `path`: the file, as `to_toml` writes it.

        **Returns:** the experiment.
        """
        from ._toml import document_in

        return cls.from_dict(document_in(path), str(path))

    def replace(self, **changes: Any) -> "Experiment":
        """Return an experiment with some values changed.

        A new kind keeps the given fields that it has, too. What was not given gets its default anew: with other
        eigenvalues there may be another number of heads.

        **Arguments:**

        - `**changes`: by section, a kind or a dictionary of fields; and `seed`. A field that is None gets its default.

        **Returns:** the new experiment.

        **Example:**

        >>> import stepwell as sw
        >>> sw.Experiment().replace(model={"heads": 8}, seed=3).model.heads
        8
        """
        made: dict[str, Any] = {"seed": changes.pop("seed", self.seed)}
        for name in changes:
            if name not in SECTIONS:
                raise InvalidInput(f"there is no section {shown(name)}; {nearest(name, [*SECTIONS, 'seed'])}")
        for name in SECTIONS:
            section: Section = getattr(self, name)
            made[name] = replaced(name, section, _as_mapping(name, changes.get(name)))
        return Experiment(**made)

    # ---- what it does ----

    def build(self) -> Built:
        """Return its task, initial model and objective.

        **Returns:** the three, as the room that each belongs to has them.

        **Example:**

        >>> import stepwell as sw
        >>> task, model, objective = sw.Experiment(task={"dim": 2}).build()
        >>> type(task).__name__, model.key.shape, type(objective).__name__
        ('InContextRegression', (2, 1, 3), 'Population')
        """
        from ._build import build

        return build(self)

    def run(self, **options: Any) -> "xr.Dataset":
        """Train, and return the trajectory. See `stepwell.experiments.run` for the options.

        **Arguments:**

        - `**options`: `seeds`, `progress`, `checkpoint`, `throw`.

        **Returns:** the trajectory; its attribute `experiment` says what it is of. Times are the paper's t/τ.
        """
        from ._run import run

        return run(self, **options)

    def predict(self) -> "Prediction":
        """Return what theory says of this experiment, from its own initial weights, before anything is trained.

        **Returns:** the `Prediction`: levels, drops and limits; where there is none, the reason.
        """
        from ._prediction import predict

        return predict(self)

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in SECTIONS if name != "record" or self.record.given]
        return f"Experiment({', '.join(parts)}, seed={self.seed})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = []
        for name in SECTIONS:
            section: Section = getattr(self, name)
            kind = find_kind(name, section.kind)
            rows.append(f"<tr><th colspan=3 style='text-align:left'>{name}: {escape(section.kind)}</th></tr>")
            for field, value in section.canonical.items():
                if value is not None:
                    about = kind.fields[field].description() if field in kind.fields else ""
                    cells = (field, _short(value), about)
                    rows.append(
                        "<tr>" + "".join(f"<td style='text-align:left'>{escape(str(c))}</td>" for c in cells) + "</tr>"
                    )
        rows.append(f"<tr><th style='text-align:left'>seed</th><td>{self.seed}</td><td>{self.name[:8]}</td></tr>")
        return f"<table>{''.join(rows)}</table>"


def _restored(given: dict[str, Any]) -> Experiment:
    return Experiment(**given)


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_short, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def canonical_text(canonical: Mapping[str, Any]) -> str:
    """Return a canonical form as JSON with sorted keys and without spaces: what names are made of.

    **Arguments:**

    - `canonical`: values by dotted name, as `Experiment.canonical` returns them.

    **Returns:** the text.

    **Example:**

    >>> from stepwell.experiments import canonical_text
    >>> canonical_text({"seed": 3, "model.heads": 2})
    '{"model.heads":2,"seed":3}'
    """
    return json.dumps(dict(canonical), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def name_of(canonical: Mapping[str, Any]) -> str:
    """Return the name of a run: the beginning of the SHA-256 of its canonical text.

    **Arguments:**

    - `canonical`: values by dotted name, as `Experiment.canonical` returns them.

    **Returns:** 32 hexadecimal digits.

    **Example:**

    >>> from stepwell.experiments import name_of
    >>> name_of({"seed": 3, "model.heads": 2})
    '9f02a8edcce46f95ac65de0be5d89290'
    """
    return hashlib.sha256(canonical_text(canonical).encode()).hexdigest()[:32]


def _check_table(given: Any, what: str) -> None:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{what} is {shown(given)}; it must be a table of values by name")


def _as_mapping(section: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, str):
        return {"kind": given}
    if isinstance(given, Section):
        return {"kind": given.kind, **given.given}
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return dict(given)
    raise InvalidInput(f"{section} is {shown(given)}; it must be the name of a kind, or a table of fields with kind")


def section_of_given(section: SectionName, given: Any, sections: Mapping[str, Any]) -> Section:
    """A section, its values checked and its defaults filled in."""
    values = {name: value for name, value in _as_mapping(section, given).items() if value is not None}
    named = values.pop("kind", None)
    kind = find_kind(section, default_kind(section, sections) if named is None else named)
    checked = {name: convert(kind, name, value) for name, value in values.items()}
    return resolved(kind, checked, sections, named=named is not None)


def resolved(kind: Kind, given: Mapping[str, Any], sections: Mapping[str, Any], *, named: bool) -> Section:
    """A section of checked values."""
    filled = {name: field.default for name, field in kind.fields.items()} | dict(given)
    if kind.fill is not None:
        before, filled = filled, kind.fill(dict(filled), sections)
        filled = filled if kind.is_own else _checked(kind, before, filled)
    for name in given:
        _check_effect(kind, name, given, filled)
    canonical = filled if kind.canonical is None else kind.canonical(filled, sections)
    for name in kind.conditional:  # a default that has no effect would be refused if it were given
        if canonical.get(name) == kind.fields[name].default and _without_effect(kind, name, filled):
            canonical = {other: value for other, value in canonical.items() if other != name}
    remembered = {**({"kind": kind.name} if named else {}), **given}
    return Section(kind.name, remembered, {**filled, **canonical}, canonical)


def _checked(kind: Kind, before: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """Filled values, of which the new ones are converted as if they had been given: a name does not depend on that."""
    made = dict(filled)
    for name, value in made.items():
        if value is not None and value is not before.get(name) and name in kind.fields:
            made[name] = convert(kind, name, value)
    return made


def _without_effect(kind: Kind, name: str, filled: Mapping[str, Any]) -> str:
    """The field that keeps another from having an effect; empty if it has one."""
    when = kind.fields[name].about.when
    return next((other for other, values in when.items() if filled[other] not in values), "")


def _check_effect(kind: Kind, name: str, given: Mapping[str, Any], filled: Mapping[str, Any]) -> None:
    """Refuse a value that has no effect."""
    other = _without_effect(kind, name, filled)
    if other:
        allowed = " or ".join(map(_word, kind.fields[name].about.when[other]))
        raise InvalidInput(
            f"{name} is given as {shown(given[name])}, and has an effect only where {other} is {allowed}; here "
            f"{other} is {_word(filled[other])}, so leave it out"
        )


def _word(value: Any) -> str:
    return "left out" if value is None else str(value)


def default_kind(section: SectionName, sections: Mapping[str, Any]) -> str:
    """The kind of a section that is not named."""
    if section == "task":
        return _DEFAULT_TASK
    if section == "record":
        return "record"
    before: SectionName = SECTIONS[SECTIONS.index(section) - 1]
    previous: Section = sections[before]
    follows = find_kind(before, previous.kind).follows
    if follows is None:
        return {"model": "separate", "objective": "sampled", "training": "descent"}[section]
    return follows if isinstance(follows, str) else follows(dict(previous), sections)


def convert(kind: Kind, name: str, value: Any, *, label: str | None = None, text: bool = False) -> Any:
    """A value of a field of a kind, checked."""
    if name not in kind.fields:
        raise InvalidInput(_no_field(kind, name))
    where = name if kind.section == "record" else f"{kind.section}.{name}"
    return kind.fields[name].convert(value, name=label or where, text=text)


def _belongs(key: Any) -> str:
    """What to do with a key that is no section: use another verb or table, or the nearest name."""
    if key == "sweep":
        return "a file with this table is a study: run it with `stepwell sweep`, or remove the table"
    for section in SECTIONS:
        if any(key in kind.fields for kind in kinds(section).values()):
            return f"it is a field of the section {section}: write it in the table [{section}]"
    return nearest(str(key), [*SECTIONS, "seed"])


def _no_field(kind: Kind, name: str) -> str:
    """What to say of a field that a kind does not have: who has it, or what was meant."""
    what = "record" if kind.section == "record" else f"the {kind.section} kind {kind.name}"
    having = [other.name for other in kinds(kind.section).values() if name in other.fields]
    if having:
        listing = having[0] if len(having) == 1 else f"one of {', '.join(having)}"
        return f"{what} has no field {shown(name)}; leave it out, or choose the {kind.section} {listing}"
    elsewhere = [section for section in SECTIONS if any(name in other.fields for other in kinds(section).values())]
    if elsewhere:
        return f"{what} has no field {shown(name)}; it belongs to the section {elsewhere[0]}"
    return f"{what} has no field {shown(name)}; {nearest(name, list(kind.fields)) if kind.fields else 'it has none'}"


def replaced(section: SectionName, current: Section, change: dict[str, Any]) -> dict[str, Any]:
    """What is given of a section after a change. A kind that was not named follows anew from the sections before."""
    before = {name: value for name, value in current.given.items() if name != "kind"}
    name = change.get("kind", current.given.get("kind"))
    if name is not None and name != current.kind:
        fields = find_kind(section, name).fields
        before = {field: value for field, value in before.items() if field in fields}
    known = [find_kind(section, name or current.kind)]
    changed = change.keys() - {"kind"}
    if name is None and not changed <= known[0].fields.keys():  # another kind may follow, to which these belong
        known = [kind for kind in kinds(section).values() if changed <= kind.fields.keys()]
    for kind in known:
        for field in change:
            for other in kind.replaces.get(field, ()):
                if change[field] is not None and other not in change:
                    before.pop(other, None)
    made = {**before, **{field: value for field, value in change.items() if field != "kind"}}
    return {**({"kind": name} if name is not None else {}), **made}


def sections_of(experiment: Experiment) -> dict[str, Any]:
    """Return all sections by name, and the seed: what `fill` and `canonical` of a kind read.

    **Arguments:**

    - `experiment`: the experiment.

    **Returns:** the sections and the seed, by name.

    **Example:**

    >>> import stepwell as sw
    >>> list(sw.experiments.sections_of(sw.Experiment()))
    ['task', 'model', 'objective', 'training', 'record', 'seed']
    """
    return {**{name: getattr(experiment, name) for name in SECTIONS}, "seed": experiment.seed}


def training_of(experiment: Experiment) -> "AbstractTraining":
    """Return the training of an experiment: what its builder makes of its fields.

    **Arguments:**

    - `experiment`: the experiment.

    **Returns:** the training.

    **Example:**

    >>> import stepwell as sw
    >>> sw.experiments.training_of(sw.Experiment(training={"kind": "descent", "rate": 0.1, "steps": 5}))
    Descent(rate=0.1, steps=5, optimizer='sgd', schedule='constant')
    """
    kind = find_kind("training", experiment.training.kind)
    return kind.build(**{name: experiment.training[name] for name in kind.fields})
