"""Kinds of task, model, objective, training and record: builders with typed signatures, in an open registry.

What the package brings and what a user registers is declared in the same way. A file never imports code: kinds come
from an import, from `--with FILE.py`, or from the entry points `stepwell.kinds` of installed packages.
"""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

from stepwell._util.errors import InvalidInput
from stepwell._util.text import error_line, nearest, shown

from ._field import DeclaredField, fields_of

SectionName = Literal["task", "model", "objective", "training", "record"]
SECTIONS: tuple[SectionName, ...] = get_args(SectionName)
"""The parts of an experiment, in the order in which they are resolved: each may depend on those before it."""
ENTRY_POINTS = "stepwell.kinds"
"""The group of entry points by which an installed package registers its kinds."""

_CONTEXT: dict[str, tuple[str, ...]] = {
    "task": ("key", "keys"),
    "model": ("task", "key", "keys"),
    "objective": ("task", "model", "normalization", "key", "keys"),
    "training": (),
    "record": (),
}
"""What a builder may ask for beside its fields, as positional parameters by name."""

_NOTES: dict[str, tuple[str, ...]] = {
    "task": ("closed_form", "rotates", "supervised"),
    "model": ("theory", "factors", "activation", "reads", "weights", "divisors", "many"),
    "objective": ("holds", "rotates"),
}
"""What may be said of a kind beside its fields, as `register` explains."""

Builder = TypeVar("Builder", bound=Callable[..., Any])
Values = dict[str, Any]
Fill = Callable[[Values, Mapping[str, Any]], Values]
"""Takes the values of a section and the sections before it; returns values with the missing ones filled in."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task, model, objective, training or record, as `register` explains its parts.

    `build` makes what it is a kind of, from its context (`wants`) and its fields.
    """

    section: SectionName
    name: str
    build: Callable[..., Any]
    fields: dict[str, DeclaredField]
    wants: tuple[str, ...]
    help: str
    fill: Fill | None = None
    canonical: Fill | None = None
    follows: str | Callable[[Values, Mapping[str, Any]], str] | None = None
    replaces: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def is_own(self) -> bool:
        """Whether the package brings it."""
        return self.build.__module__.startswith("stepwell.")

    @functools.cached_property
    def conditional(self) -> tuple[str, ...]:
        """The fields that have an effect only at some values of others."""
        return tuple(name for name, field in self.fields.items() if field.about.when)


_REGISTRY: dict[str, dict[str, Kind]] = {section: {} for section in SECTIONS}
_LOADED = {"own": False, "entry points": False}
_REGISTRATIONS = [0]


def register(
    section: SectionName,
    name: str,
    *,
    fill: Fill | None = None,
    canonical: Fill | None = None,
    follows: str | Callable[[Values, Mapping[str, Any]], str] | None = None,
    replaces: Mapping[str, tuple[str, ...]] | None = None,
    **notes: Any,
) -> Callable[[Builder], Builder]:
    """Return a decorator that registers a builder as a kind of a section.

    Keyword-only parameters of the builder are the fields of the kind. Each has a type, a default and, best, a `Field`
    with its help and bounds. Other parameters are asked for by name: a task may have `key`; a model `task` and `key`;
    an objective `task`, `model`, `normalization` and `key`; each of them, instead of `key`, all `keys` of the seed.

    **Arguments:**

    - `section`: "task", "model", "objective" or "training".
    - `name`: of the kind, as files and flags have it.
    - `fill`: fills in defaults that depend on other values, and refuses what does not fit together. It gets the
      values and the sections before this one, and returns the values.
    - `canonical`: from filled values to the canonical ones, where there are several ways to say the same.
    - `follows`: the default kind of the next section.
    - `replaces`: by field, other fields that a new value takes the place of.
    - `**notes`: of a model, all of them optional:
        - `theory`: "separate" or "merged", the equations that it follows, which its class declares too; or "units", of
          `PolynomialUnits` and `ActivationUnits`.
        - `factors`: the number of weights whose product makes a prediction, by default that of the theory.
        - `activation`: "softmax", of a kind without a field of this name whose attention is not linear.
        - `reads`: "tokens" (the default), "cubic" features, "spectra" of several regressions, or "inputs" alone.
        - `weights`: a function of the values, the dimension and the outputs that returns how many weights there are.
          What would not fit into memory is then refused before it is built.
        - `divisors`: where initial weights are normal numbers times the field `scale`, a function of the same that
          returns what the scale is divided by for each array of weights, or None for values at which they are not.
          Sweeps and runs of several seeds then draw them at once, on tasks and objectives that rotate.
        - `many`: a builder of many models of one task at once for sweeps. It gets what the plain builder gets, but an
          array of keys, and each field whose value is a float as an array, and returns a model whose weights have the
          runs as their first axis. Its first and last model are compared with those of the plain builder, bit for bit.
      Of a task, `closed_form=True`: its class has `closed_form`, and linear attention is trained on `population` by
      default, otherwise on `moments`; `rotates`: the name of a field that is "axes" or "random"; at "random" the task
      is that at "axes", rotated by `random_rotation(dim, key=key)`; `supervised`: it gives inputs with labels and no
      context, "data" if its examples are finitely many, else "drawn". Of an objective, `holds="moments"`: sequences are
      not held in memory, only their moments; `rotates=True`: it is made of `task` and `normalization` alone, and its
      arrays with two axes are matrices over the inputs.

    **Returns:** the decorator, which returns the builder as it is.

    **Example:**

    >>> from typing import Annotated
    >>> from stepwell.experiments import Field, register
    >>> @register("model", "halved")
    ... def halved(task, key, *, heads: Annotated[int, Field("attention heads", least=1)] = 2):
    ...     return sw.MergedAttention.random(dim=task.dim, heads=heads, scale=0.5, key=key)
    >>> sw.Experiment(model="halved").model.heads
    2
    """
    kinds(section)  # which refuses what is no section
    for note in notes:
        if note not in _NOTES.get(section, ()):
            near = nearest(note, [*_NOTES.get(section, ()), "fill", "canonical", "follows", "replaces"])
            raise InvalidInput(f"the {section} kind {name} is registered with an unknown note {note!r}; {near}")
    if not re.fullmatch(r"[^\W_][\w-]*", name):
        raise InvalidInput(f"the kind is called {shown(name)}; a name has letters, digits, _ and -, as files do")

    def wrap(builder: Builder) -> Builder:
        parameters = inspect.signature(builder).parameters.values()
        positional = [one.name for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        for wanted in positional:
            if wanted not in _CONTEXT[section]:
                allowed = ", ".join(_CONTEXT[section]) or "none"
                raise InvalidInput(
                    f"the builder of {section} {name} asks for {wanted}; it may ask for {allowed}, and fields are "
                    "keyword-only parameters (after *)"
                )
        earlier = _REGISTRY[section].get(name)
        if earlier is not None and _origin(earlier.build) != _origin(builder):
            raise InvalidInput(
                f"the {section} kind {name} is registered already, by {'.'.join(_origin(earlier.build))}; choose "
                "another name"
            )
        help_line, fields = (inspect.getdoc(builder) or name).splitlines()[0], fields_of(builder)
        if "divisors" in notes and "scale" not in fields:
            raise InvalidInput(
                f"the model kind {name} is registered with the note divisors, by which the field scale is divided, and "
                "its builder has no such field; give it the keyword scale: float, or leave the note out"
            )
        described = section, name, builder, fields, tuple(positional), help_line
        _REGISTRATIONS[0] += 1
        _REGISTRY[section][name] = Kind(*described, fill, canonical, follows, replaces or {}, notes)
        return builder

    return wrap


def _origin(builder: Callable[..., Any]) -> tuple[str, str]:
    return builder.__module__, builder.__qualname__


def kinds(section: SectionName, *, installed: bool = False) -> dict[str, Kind]:
    """Return the kinds of a section that are registered, by name.

    **Arguments:**

    - `section`: "task", "model", "objective", "training" or "record".
    - `installed`: whether to ask installed packages for theirs, too.

    **Returns:** the kinds.

    **Example:**

    >>> from stepwell.experiments import kinds
    >>> list(kinds("model"))[:2]
    ['separate', 'merged']
    """
    if not _LOADED["own"]:
        _LOADED["own"] = True
        from . import _kinds as _own  # noqa: F401  (registers what the package brings)
    if installed:
        _load_entry_points()
    if section not in SECTIONS:
        raise InvalidInput(f"section is {shown(section)}; it must be one of {', '.join(SECTIONS)}")
    return _REGISTRY[section]


def sections_with(field: str) -> list[SectionName]:
    """The sections of which a kind has this field."""
    return [section for section in SECTIONS if any(field in kind.fields for kind in kinds(section).values())]


def registrations() -> int:
    """Return how often a kind was registered: what was derived from kinds holds as long as this stays the same.

    **Returns:** the number of calls of the decorators that `register` returns.

    **Example:**

    >>> from stepwell.experiments import kinds, registrations
    >>> registrations() >= len(kinds("model"))
    True
    """
    return _REGISTRATIONS[0]


def find_kind(section: SectionName, name: Any) -> Kind:
    """Return the kind of a name; installed packages are asked for one that is not known.

    **Arguments:**

    - `section`: "task", "model", "objective", "training" or "record".
    - `name`: of the kind.

    **Returns:** the kind. `InvalidInput` is raised if there is none of this name.

    **Example:**

    >>> from stepwell.experiments import find_kind
    >>> find_kind("model", "merged").fields["scale"].default
    0.01
    """
    known = kinds(section, installed=isinstance(name, str) and name not in kinds(section))
    if not isinstance(name, str) or name not in known:
        near = nearest(str(name), list(known))
        near += "" if near.endswith("?") else "."
        raise InvalidInput(
            f"there is no {section} kind {shown(name)}; {near} A kind of your own is "
            "registered by --with FILE.py, or by an import"
        )
    return known[name]


def note_of(model: str, note: str, default: Any = None) -> Any:
    """Return a note that a kind of model was registered with.

    **Arguments:**

    - `model`: the name of the kind.
    - `note`: the name of the note, as `register` lists them.
    - `default`: what is returned where the kind has no such note.

    **Returns:** the note.

    **Example:**

    >>> from stepwell.experiments import note_of
    >>> note_of("mlp", "theory"), note_of("mlp", "reads"), note_of("merged", "reads", "tokens")
    ('merged', 'cubic', 'tokens')
    """
    return find_kind("model", model).notes.get(note, default)


def _load_entry_points() -> None:
    if _LOADED["entry points"]:
        return
    _LOADED["entry points"] = True
    import warnings
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # of another's package, which must not keep ours from answering
            warnings.warn(f"the kinds of {point.value} cannot be loaded ({error_line(error)})", stacklevel=2)
